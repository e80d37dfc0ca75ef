"""Quantities: what apimachinery accepts, how values compare, and that nothing is lost."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.quantity import (
    MAX_BINARY,
    QuantityFormat,
    canonicalize_quantity,
    parse_quantity,
    render_quantity,
    same_quantity,
)

GI = 2**30
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]

numbers = st.one_of(
    st.integers(0, 10**15).map(str),
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**12)).map(
        lambda pair: f"{pair[0]}.{pair[1]}"
    ),
)
quantities = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(["", "-", "+"]), numbers, st.sampled_from(SUFFIXES)),
    st.builds("{}e{}".format, numbers, st.integers(-30, 30)),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1Gi", GI),
        (5, 5),
        ("+1k", 1000),
        ("-1500m", Fraction(-3, 2)),
        ("0.5Gi", GI // 2),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("12e6", 12_000_000),
        ("100n", Fraction(1, 10**7)),
    ],
)
def test_parse_reads_every_notation_of_the_api(text: str | int, value: Fraction | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "Gi", "1 Gi", " 1Gi", "1gi", "1KI", "1K", "0x10", "1e", "1e+", "--1", "1.2.3", "."),
        *("ten", "1Gi\n", "\N{ARABIC-INDIC DIGIT ONE}"),
    ],
)
def test_parse_refuses_what_is_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity") as failure:
        parse_quantity(text)

    assert repr(text) in str(failure.value)


@pytest.mark.parametrize("value", [True, 1.5, None, ["1Gi"]])
def test_parse_refuses_other_json_values(value: object) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(value)  # type: ignore[arg-type]  # what raw JSON may hold


def test_parse_refuses_a_text_of_endless_length_without_working_on_it() -> None:
    with pytest.raises(ValueError, match=r"99\.\.\."):
        parse_quantity("9" * 1_000_000)


@pytest.mark.parametrize("text", ["0.1n", "1e-20", "0.0000000001"])
def test_parse_rounds_up_to_nano_as_the_server_does(text: str) -> None:
    assert parse_quantity(text) == Fraction(1, 10**9)
    assert parse_quantity(f"-{text}") == Fraction(-1, 10**9)


def test_parse_cuts_binary_values_at_the_largest_number_of_the_server() -> None:
    assert parse_quantity("8Ei") == parse_quantity("9999Ei") == MAX_BINARY
    assert parse_quantity("9999E") == 9999 * 10**18


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("16Gi", "16384Mi", True),
        ("16Gi", "17179869184", True),
        ("16Gi", 17179869184, True),
        ("1000m", 1, True),
        ("1Gi", "1G", False),
        ("15675Mi", "16Gi", False),
        ("0", "-0", True),
    ],
)
def test_same_compares_values_and_not_text(left: str | int, right: str | int, same: bool) -> None:
    assert same_quantity(left, right) is same


@pytest.mark.parametrize(
    ("value", "quantity_format", "text"),
    [
        (GI, "BinarySI", "1Gi"),
        (GI + 1, "BinarySI", "1073741825"),
        (1536 * 2**20, "BinarySI", "1536Mi"),
        (2**70, "BinarySI", "1024Ei"),
        (1000, "BinarySI", "1k"),
        (-2048, "BinarySI", "-2Ki"),
        (Fraction(4097, 2), "BinarySI", "2048500m"),
        (Decimal("0.25"), "DecimalSI", "250m"),
        (10**21, "DecimalSI", "1000E"),
        (10**21, "DecimalExponent", "1e21"),
        (5, "DecimalExponent", "5"),
        (0, "BinarySI", "0"),
    ],
)
def test_render_is_the_shortest_exact_form(
    value: Fraction | Decimal | int, quantity_format: QuantityFormat, text: str
) -> None:
    assert render_quantity(value, quantity_format) == text


def test_render_refuses_to_lose_what_is_finer_than_nano() -> None:
    with pytest.raises(ValueError, match="finer than one nano unit"):
        render_quantity(Fraction(1, 3))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("0.5Gi", "512Mi"), ("1024Mi", "1Gi"), ("1000m", "1"), ("1e3", "1e3"), ("100e-2", "1")],
)
def test_canonical_form_has_the_largest_suffix_without_fraction(text: str, canonical: str) -> None:
    assert canonicalize_quantity(text) == canonical


@given(quantities)
def test_canonical_form_keeps_the_value_and_is_stable(text: str) -> None:
    canonical = canonicalize_quantity(text)

    assert same_quantity(text, canonical)
    assert canonicalize_quantity(canonical) == canonical


@given(
    st.integers(-MAX_BINARY, MAX_BINARY),
    st.sampled_from(["BinarySI", "DecimalSI", "DecimalExponent"]),
)
def test_rendering_loses_nothing_in_any_format(nanos: int, quantity_format: QuantityFormat) -> None:
    value = Fraction(nanos, 10**9)

    assert parse_quantity(render_quantity(value, quantity_format)) == value
    assert parse_quantity(render_quantity(nanos, quantity_format)) == nanos


@given(st.integers(0, 2**50), st.integers(0, 2**50))
def test_order_of_values_is_the_order_of_numbers(left: int, right: int) -> None:
    less = parse_quantity(render_quantity(left)) < parse_quantity(render_quantity(right))

    assert less is (left < right)


@given(st.text(max_size=12))
def test_parse_of_any_text_is_a_value_or_a_value_error(text: str) -> None:
    try:
        value = parse_quantity(text)
    except ValueError:
        return

    assert (value * 10**9).denominator == 1
