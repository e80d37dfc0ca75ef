# mypy: ignore-errors
# Macros of the BUILD files: who may import whom, and what a package is made of. Pants reads this file
# before each BUILD file (build_file_prelude_globs), so it has no imports and all names of BUILD files.
#
# Pants 2.17 checks visibility in `./pants dependencies ::` alone: `lint` and `test` pass all the same.
# The gate runs it, and tools/pants/visibility_test.py plants a violation to prove that it fails.


def operator_visibility():
    # An operator imports itself, the library and third-party packages, and nobody but the tools
    # and the tests of the whole imports it: operators meet in the Kubernetes API only. Its tests may use
    # the simulator of KubeVirt; import-linter keeps its code from it, as from all tools.
    __dependencies_rules__(
        (
            "*",
            "/**",
            "//libs/**",
            "//3rdparty/**",
            "//operators/__init__.py",
            "//conftest.py",
            # The example of a handler.
            "//slipway_handler/**",
            "//lab/__init__.py",
            "//lab/kubevirt_sim/**",
            "!*",
        )
    )
    # The kubectl plugin is tested with the kinds and reconcilers of all operators; import-linter keeps
    # its code from them.
    __dependents_rules__(
        (
            "*",
            "/**",
            "//lab/**",
            "//tools/**",
            "//tests/**",
            "//helm/**",
            "//deploy/**",
            "//kubectl_slipway/**",
            "!*",
        )
    )


def app_visibility(operator):
    # What an operator runs in its pods, an image of its own beside that of the operator. Neither
    # imports the other, so that neither's packages get into the other's image; their interface is
    # the environment of the container. Tests of the operator can check its output with the parser
    # of the app; import-linter checks that only tests do so, because Pants cannot distinguish them
    # here.
    __dependencies_rules__(
        (
            "*",
            "/**",
            "//libs/**",
            "//3rdparty/**",
            "//operators/__init__.py",
            "//operators/" + operator + "/__init__.py",
            # Fixtures and test servers of both.
            "//operators/" + operator + "/conftest.py",
            "//operators/" + operator + "/testing/**",
            # What handlers import, a distribution of its own.
            "//slipway_handler/**",
            "//conftest.py",
            "!*",
        )
    )
    __dependents_rules__(
        (
            "*",
            "/**",
            "//operators/" + operator + "/**",
            "//lab/**",
            "//tools/**",
            "//tests/**",
            "//helm/**",
            "!*",
        )
    )


def library_visibility():
    # Shared code imports itself and third-party packages; anything may import it.
    __dependencies_rules__(("*", "/**", "//3rdparty/**", "//conftest.py", "!*"))


def python_package(
    tests=True,
    skip_tests=False,
    conftest=False,
    data=(),
    overrides=None,
    exclude=(),
    broker_tests=False,
    alone=(),
):
    # One Python package with its subpackages: the code, its tests, the data files beside them.
    #
    # tests: There are tests in it.
    # skip_tests: They need more than a sandbox has; the gate runs them by plain pytest.
    # conftest: There are conftest.py files in it.
    # data: Globs of data files that the tests read; they are no part of an image.
    # overrides: Fields of single files, such as `dependencies: [":data"]` of code that reads data.
    # exclude: Globs of folders that have a BUILD file of their own.
    # alone: Globs of test files that take long: each has a process of its own, beside the others.
    # broker_tests: Files *_broker_test.py want a Pulsar broker, and processes of the app beside it.
    without = ["!" + glob for glob in exclude]
    if data:
        resources(name="data", sources=list(data))
    python_sources(
        name="lib",
        sources=["**/*.py", "!**/*_test.py", "!**/conftest.py", *without],
        overrides=overrides or {},
    )
    if conftest:
        python_test_utils(name="conftest", sources=["**/conftest.py", *without])
    if broker_tests:
        python_tests(
            name="broker_tests",
            sources=["**/*_broker_test.py", *without],
            # They run the app as a process, from the checkout: the gate does it, by plain pytest.
            skip_tests=True,
            dependencies=[":data"] if data else [],
        )
        without.append("!**/*_broker_test.py")
    if alone:
        python_tests(
            name="long_tests",
            sources=[*alone, *without],
            dependencies=[":data"] if data else [],
        )
        without += ["!" + glob for glob in alone]
    if tests:
        python_tests(
            name="tests",
            sources=["**/*_test.py", *without],
            # Files of one package share a process: to start one costs more than most tests.
            batch_compatibility_tag="package",
            skip_tests=skip_tests,
            dependencies=[":data"] if data else [],
        )


_IMAGE = """
ARG BASE=slipway/base:py313

FROM ${BASE} AS deps
COPY %(module)s/deps.pex /deps.pex
ENV PEX_TOOLS=1
RUN ["/usr/bin/python3.13", "/deps.pex", "venv", "--scope=deps", "--compile", "/app"]
# The typed client, 110 MB of modules loaded on demand, is not used: objects are plain dictionaries.
RUN ["/usr/bin/python3.13", "-c", "import pathlib; [file.unlink() for name in ('api', 'models') for file in pathlib.Path('/app').glob(f'**/kubernetes/**/client/{name}/**/[a-z]*.py*')]"]

FROM ${BASE} AS srcs
COPY %(module)s/srcs.pex /srcs.pex
ENV PEX_TOOLS=1
RUN ["/usr/bin/python3.13", "/srcs.pex", "venv", "--scope=srcs", "--compile", "/app"]

FROM ${BASE}
COPY --from=deps /app /app
COPY --from=srcs /app /app
%(further)s
# Pants reads the tag of the image from here.
ARG TAG=dev
ARG VERSION=dev
ARG REVISION=
ARG SOURCE=
LABEL org.opencontainers.image.title="%(operator)s" \\
      org.opencontainers.image.version="${VERSION}" \\
      org.opencontainers.image.revision="${REVISION}" \\
      org.opencontainers.image.source="${SOURCE}" \\
      org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONUNBUFFERED=1 \\
    PYTHONDONTWRITEBYTECODE=1 \\
    PYTHONFAULTHANDLER=1
USER 65532:65532
# -P: the working directory is no place for imports.
ENTRYPOINT ["/app/bin/python", "-P", "-m", "%(module)s"]
"""


def operator_image(operator, files=(), further=(), module=None):
    # The image slipway/<operator>: the base, one layer of third-party packages, which changes with the
    # lockfile, and one of our code. There is no shell in it, so each RUN is a list of words.
    #
    # files: Addresses of further files and binaries to put into the build context.
    # further: Lines of the Dockerfile that bring them into the image.
    # module: The package that runs, where it is not the operator itself.
    shared = {
        "entry_point": "__main__.py",
        "include_tools": True,
        "layout": "packed",
    }
    pex_binary(name="deps", include_sources=False, **shared)
    pex_binary(name="srcs", include_requirements=False, **shared)
    text = _IMAGE % {
        "operator": operator,
        "module": module or "operators." + operator,
        "further": "\n".join(further),
    }
    docker_image(
        name="image",
        instructions=text.strip().split("\n"),
        dependencies=[":deps", ":srcs", *files],
        repository="slipway/" + operator,
        image_tags=["{build_args.TAG}"],
    )


def operator_package(operator, files=(), further=(), **package):
    # The package operators/<operator> and its image: what operator_image and python_package take.
    operator_visibility()
    python_package(**package)
    operator_image(operator, files=files, further=further)
