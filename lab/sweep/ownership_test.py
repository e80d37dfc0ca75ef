from __future__ import annotations

import pytest

from lab.sweep.ownership import belongs
from libs.common.kinds import Manifest

TRIAL = "s-ipam-claims-k1-1"


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({"metadata": {"name": "a", "namespace": TRIAL}}, True),
        ({"metadata": {"name": "a", "namespace": f"{TRIAL}0"}}, False),
        ({"metadata": {"name": f"{TRIAL}-pool"}}, True),
        ({"metadata": {"name": f"{TRIAL}0-pool"}}, False),
        ({"metadata": {"name": "x"}, "spec": {"claimRef": {"namespace": TRIAL}}}, True),
        ({"metadata": {"name": "x", "managedFields": [{"manager": TRIAL}]}}, False),
    ],
)
def test_object_belongs_to_the_trial_that_it_names(manifest: Manifest, expected: bool) -> None:
    assert belongs(manifest, TRIAL) is expected
