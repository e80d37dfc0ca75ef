# Macros of the BUILD files: who may import whom, and what a package is made of. Pants reads this file
# before each BUILD file (build_file_prelude_globs), so it has no imports and all names of BUILD files.
#
# Pants 2.17 checks visibility in `./pants dependencies ::` alone: `lint` and `test` pass all the same.
# The gate runs it, and tools/pants/visibility_test.py plants a violation to prove that it fails.


def operator_visibility():
    # An operator imports itself, the library and third-party packages, and nobody but the tools
    # and the tests of the whole imports it: operators meet in the Kubernetes API only.
    __dependencies_rules__(
        (
            "*",
            "/**",
            "//libs/**",
            "//3rdparty/**",
            "//operators/__init__.py",
            "//conftest.py",
            "!*",
        )
    )
    __dependents_rules__(("*", "/**", "//tools/**", "//tests/**", "//helm/**", "//deploy/**", "!*"))


def library_visibility():
    # Shared code imports itself and third-party packages; anything may import it.
    __dependencies_rules__(("*", "/**", "//3rdparty/**", "//conftest.py", "!*"))


def python_package(tests=True, skip_tests=False, conftest=False, data=(), overrides=None):
    # One Python package with its subpackages: the code, its tests, the data files beside them.
    #
    # tests: There are tests in it.
    # skip_tests: They need more than a sandbox has; the gate runs them by plain pytest.
    # conftest: There are conftest.py files in it.
    # data: Globs of data files that the code reads.
    # overrides: Fields of single files.
    if data:
        resources(name="data", sources=list(data))
    python_sources(
        name="lib",
        sources=["**/*.py", "!**/*_test.py", "!**/conftest.py"],
        dependencies=[":data"] if data else [],
        overrides=overrides or {},
    )
    if conftest:
        python_test_utils(name="conftest", sources=["**/conftest.py"])
    if tests:
        python_tests(
            name="tests",
            sources=["**/*_test.py"],
            # Files of one package share a process: to start one costs more than most tests.
            batch_compatibility_tag="package",
            skip_tests=skip_tests,
            dependencies=[":data"] if data else [],
        )


def operator_image(operator):
    # The image slipway/<operator>, made of two files: what changes with the lockfile, and the code.
    # Both are unpacked into /app by the Dockerfile, each into a layer of its own.
    shared = {
        "entry_point": "__main__.py",
        "include_tools": True,
        "layout": "packed",
    }
    pex_binary(name="deps", include_sources=False, **shared)
    pex_binary(name="srcs", include_requirements=False, **shared)
    docker_image(
        name="image",
        repository="slipway/" + operator,
        image_tags=["{build_args.TAG}"],
    )
