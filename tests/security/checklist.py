"""The checklist: for each control its tests, and the proof that they can fail. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SUITE: Final = "tests/charts"
_HERE: Final = "tests/security"
_E2E: Final = "tests/e2e"
_IPAM: Final = "operators/ipam/controller_test.py"
_NAMESPACES: Final = f"{_HERE}/namespaces_test.py"
_WEBHOOKS: Final = "libs/common/webhooks"
_ORACLES: Final = "lab/sweep/oracles_test.py"


@dataclass(frozen=True, slots=True)
class Row:
    """A control with its tests.

    Attributes:
        number: Its number.
        control: The requirement.
        checks: Tests that verify it, as `file::name`.
        negative: Tests that show that the checks can fail.
        note: What is not checked, and why; empty if everything is.
    """

    number: int
    control: str
    checks: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    note: str = ""


_FUZZ: Final = (
    "lab/fuzz/render_test.py::test_each_value_of_each_field_is_rendered_or_refused_by_name"
)
_LINT: Final = "libs/common/rbac_test.py::test_lint_refuses"
_RIGHT: Final = f"{_HERE}/roles_test.py::test_dangerous_permission_is_found"
_POD: Final = f"{_HERE}/roles_test.py::test_dangerous_pod_is_found"
_CHART: Final = f"{_HERE}/roles_test.py::test_chart_grants_and_runs_nothing_dangerous"
_RESTRICTED: Final = f"{_SUITE}/objects.py::test_every_pod_is_restricted"
_PROCESS: Final = f"{_E2E}/security_test.py::test_process_has_no_privilege_and_no_shell"

ROWS: Final = (
    Row(
        1,
        "Pods of operators meet the restricted Pod Security Standard",
        (
            f"{_SUITE}/server.py::test_pods_are_admitted_where_the_restricted_standard_is_enforced",
            f"{_E2E}/release_test.py::test_operator_runs_under_restricted_pod_security",
        ),
        (f"{_HERE}/pods_test.py::test_pod_that_violates_the_standard_is_rejected",),
    ),
    Row(
        2,
        "Pods that operators create meet the restricted Pod Security Standard",
        (
            (
                f"{_HERE}/pods_test.py::"
                "test_default_pods_are_admitted_under_the_restricted_standard"
            ),
        ),
        (f"{_HERE}/pods_test.py::test_pod_that_violates_the_standard_is_rejected",),
        "Pods of a user's own template are as the user writes them; admission judges them.",
    ),
    Row(
        3,
        "Not root, no escalation, no capabilities, seccomp",
        (_RESTRICTED, _CHART, _PROCESS),
        (_POD,),
    ),
    Row(4, "Read-only root, /tmp limited in size", (_RESTRICTED, _PROCESS), (_POD,)),
    Row(
        5,
        "No shell and no package manager in images",
        (
            "tools/images/base_test.py::test_programs_and_documentation_are_left_out",
            _PROCESS,
        ),
        ("tools/images/base_test.py::test_files_that_python_needs_are_kept",),
    ),
    Row(
        6,
        "Images have a fixed version, and a digest if one is given",
        (_CHART, f"{_SUITE}/values.py::test_value_shows_in_the_object"),
        (_POD,),
    ),
    Row(
        7,
        "Resources, probes, disruption budget, grace period",
        (
            f"{_SUITE}/objects.py::test_every_container_has_requests_and_a_memory_limit",
            f"{_SUITE}/objects.py::test_ports_and_probes_are_the_same_in_every_operator",
            f"{_SUITE}/values.py::test_one_replica_has_no_disruption_budget",
        ),
        (f"{_SUITE}/lifecycle.py::test_bad_values_are_refused_by_name",),
    ),
    Row(
        8,
        "Only pods that need a token have one",
        (f"{_SUITE}/objects.py::test_no_pod_gets_service_links_or_a_token_that_it_does_not_use",),
        ("libs/common/config_test.py::test_service_account_without_a_token_is_reported",),
        "The kubelet issues the token: valid for an hour, renewed, without an audience of its own.",
    ),
    Row(
        9,
        "No wildcards, no privilege escalation (the rules of BadRobot)",
        (_CHART, f"{_SUITE}/permissions.py::test_no_rule_has_wildcards_or_escalates_permissions"),
        (
            _RIGHT,
            _LINT,
            f"{_HERE}/roles_test.py::test_binding_of_an_admin_role_or_to_everybody_is_found",
        ),
    ),
    Row(
        10,
        "Every granted permission is used",
        (
            "lab/sweep/rights_test.py::test_used_permissions_are_not_listed",
            "libs/common/testing/conformance.py::test_permissions_are_sufficient",
        ),
        (
            "lab/sweep/rights_test.py::test_unused_permission_is_listed",
            f"{_ORACLES}::test_missing_permission_is_found_unless_it_was_the_fault",
        ),
        "The step `sweep` of the gate fails on each right that no workload uses.",
    ),
    Row(
        11,
        "A missing permission causes neither an exit nor a hot loop",
        (
            f"{_HERE}/rights_test.py::test_operator_without_a_permission_neither_exits_nor_busy_loops",
        ),
        (f"{_HERE}/rights_test.py::test_operator_continues_when_the_permission_is_restored",),
    ),
    Row(
        12,
        "An account for each operator, Roles in its namespaces only",
        (
            (
                f"{_SUITE}/permissions.py::"
                "test_default_permissions_end_at_the_namespace_of_the_release"
            ),
            f"{_SUITE}/permissions.py::test_every_role_is_bound_only_to_the_service_account",
        ),
        (f"{_E2E}/release_test.py::test_permissions_end_at_the_own_namespace",),
    ),
    Row(13, "No permission to run commands in pods", (_CHART,), (_RIGHT,)),
    Row(
        14,
        "References to other namespaces are refused",
        (_FUZZ, f"{_NAMESPACES}::test_every_field_that_names_a_namespace_is_known"),
        (
            f"{_ORACLES}::test_write_that_breaks_a_convention_is_reported",
            f"{_NAMESPACES}::test_field_that_names_a_namespace_is_found",
        ),
        "The sweep watches every request for it.",
    ),
    Row(
        15,
        "Other namespaces must opt in",
        (
            f"{_IPAM}::test_namespace_gets_addresses_after_its_labels_match",
            f"{_NAMESPACES}::test_machines_clone_only_from_namespaces_that_allow_it",
        ),
        (f"{_NAMESPACES}::test_permission_to_clone_from_everywhere_is_found",),
        "According to its documentation, CDI refuses a clone from a namespace that does not allow "
        "it to the service account of compute. No test verifies this.",
    ),
    Row(
        16,
        "Users cannot do through an operator what they may not do themselves",
        (f"{_HERE}/deputies_test.py::test_operator_changes_nothing_that_an_editor_may_not_change",),
        (f"{_HERE}/deputies_test.py::test_permission_that_an_editor_lacks_is_found",),
        "An operator acts with its own permissions, not with the permissions of the user. The test "
        "compares them with the role `edit`, except for kinds of other projects, whose roles are "
        "not available. The page Security describes what users without that role can do.",
    ),
    Row(
        17,
        "Adoption only by UID",
        (
            "operators/podset/ownership_test.py::test_foreign_pod_is_never_changed",
            f"{_E2E}/volumes_test.py::test_foreign_claim_is_never_adopted",
        ),
        ("operators/podset/ownership_test.py::test_orphan_that_matches_the_selector_is_adopted",),
        "The sweep finds the mutants `overwrite-foreign` and `take-over-claims`.",
    ),
    Row(
        18,
        "Forged labels and annotations do not make an operator skip anything",
        (f"{_HERE}/forged_test.py::test_forged_progress_and_hashes_do_not_stop_the_operator",),
        (f"{_HERE}/forged_test.py::test_pause_annotation_pauses",),
        "No admission policy protects them, because operators do not rely on them.",
    ),
    Row(
        19,
        "Schemas are structural and bounded; final fields cannot change",
        (
            f"{_HERE}/schema_test.py::test_schema_breaks_no_rule_that_is_not_waived",
            f"{_HERE}/schema_test.py::test_fields_of_any_shape_are_known",
            "lab/fuzz/server_test.py::test_server_model_and_types_agree_on_each_value",
        ),
        (
            f"{_HERE}/schema_test.py::test_schema_without_bounds_is_found",
            "libs/common/crd/lint_test.py::test_rule_finds_its_offense",
        ),
    ),
    Row(
        20,
        "Admission restricts the service account of an operator",
        (f"{_E2E}/release_test.py::test_permissions_end_at_the_own_namespace",),
        (_RIGHT,),
        "By RBAC alone; there is no ValidatingAdmissionPolicy.",
    ),
    Row(
        21,
        "Failing webhooks do not stop the cluster",
        (
            "helm/jmxexporter/chart_test.py::test_webhook_is_created_only_on_request",
            "operators/jmxexporter/startup_test.py::test_container_in_doubt_is_not_changed",
        ),
        (
            f"{_WEBHOOKS}/server_test.py::test_api_server_trusts_calls_and_follows_the_webhook",
            f"{_WEBHOOKS}/server_test.py::test_request_that_is_not_a_review_is_rejected",
        ),
        "Only jmxexporter has a webhook, which is disabled by default.",
    ),
    Row(
        22,
        "TLS for webhooks and metrics",
        (
            f"{_WEBHOOKS}/server_test.py::test_api_server_trusts_calls_and_follows_the_webhook",
            (
                f"{_WEBHOOKS}/keeper_test.py::"
                "test_renewed_certificate_keeps_the_previous_one_trusted"
            ),
            "tests/interplay/cert_manager_test.py::test_pods_reach_the_webhook_through_every_renewal",
            "libs/common/metrics_access_test.py::test_only_a_permitted_service_account_reads_metrics",
        ),
        (
            f"{_WEBHOOKS}/server_test.py::test_new_certificate_is_served_without_a_restart",
            f"{_WEBHOOKS}/certificates_test.py::test_unusable_certificate_is_replaced",
            (
                f"{_WEBHOOKS}/issued_test.py::"
                "test_certificate_that_cannot_be_served_is_refused_and_left_alone"
            ),
            "libs/common/metrics_access_test.py::test_unreachable_api_server_allows_nobody",
        ),
        "By default, metrics are plain HTTP without login; settings.metricsSecure enables HTTPS "
        "and authorization. The sweep searches metrics for secrets.",
    ),
    Row(
        23,
        "Network policies allow only required traffic",
        (f"{_HERE}/network_test.py::test_network_policy_of_each_chart_lists_its_traffic",),
        (f"{_HERE}/network_test.py::test_policy_that_allows_all_egress_is_found",),
        "Disabled by default. Not tested on a cluster that enforces network policies.",
    ),
    Row(
        24,
        "Text from users is never executed",
        (f"{_HERE}/code_test.py::test_no_process_starts_programs_or_runs_text", _FUZZ),
        (f"{_HERE}/code_test.py::test_planted_danger_is_found",),
    ),
    Row(
        25,
        "Addresses from users cannot reach internal endpoints",
        (
            f"{_HERE}/code_test.py::test_connections_of_each_module_are_listed",
            "libs/common/transport_answers_test.py::test_redirect_is_a_failure_and_is_not_followed",
        ),
        (f"{_HERE}/code_test.py::test_planted_client_is_found",),
    ),
    Row(
        26,
        "Secrets are never shown",
        (
            "lab/sweep/canaries_test.py::test_canary_is_found_in_plain_text_and_in_a_url",
            "libs/common/logs_test.py::test_secrets_do_not_show_in_any_part_of_a_line",
            "libs/common/telemetry_test.py::test_secrets_do_not_get_into_spans",
            "libs/common/health_test.py::test_raising_check_fails_without_its_secret",
        ),
        (
            (
                "lab/sweep/proxy_test.py::"
                "test_secret_in_a_written_object_is_reported_except_in_a_secret"
            ),
        ),
        "Each trial of the sweep looks for its canaries in log, Events, objects and metrics.",
    ),
    Row(27, "Secrets are files, not variables", (_CHART,), (_POD,)),
    Row(
        28,
        "A flood in one namespace does not starve others",
        (
            f"{_HERE}/flood_test.py::test_quiet_namespace_is_served_during_a_flood",
            "libs/common/runtime/queue_test.py::test_flood_in_one_namespace_does_not_starve_another",
        ),
        (f"{_HERE}/flood_test.py::test_quiet_namespace_waits_without_fair_queue",),
        "No FlowSchema is installed; the limits of the cluster apply.",
    ),
    Row(
        29,
        "Objects of other owners are not changed",
        (
            "operators/podset/ownership_test.py::test_foreign_pod_is_never_changed",
            (
                "operators/volumes/foreign_test.py::"
                "test_foreign_claim_is_unchanged_and_its_name_is_used_after_its_deletion"
            ),
        ),
        (
            "lab/sweep/oracles_test.py::test_object_created_twice_is_found_unless_the_fault_removed_it",
        ),
        "Mode E409 of the sweep creates a foreign object before every create.",
    ),
    Row(
        30,
        "Deletions check the UID and finish",
        (
            "libs/common/finalizers_test.py::test_server_rejects_a_patch_for_another_uid",
            (
                f"{_E2E}/release_test.py::"
                "test_uninstall_leaves_nothing_but_crds_and_no_stuck_finalizer"
            ),
        ),
        (f"{_ORACLES}::test_write_that_breaks_a_convention_is_reported",),
    ),
    Row(
        31,
        "Supply chain: pins with hashes, bill of materials, licenses",
        (
            f"{_HERE}/supply_test.py::test_lock_has_the_versions_of_the_requirements_with_hashes",
            f"{_HERE}/supply_test.py::test_no_locked_version_has_a_known_advisory",
            f"{_HERE}/supply_test.py::test_bill_of_materials_is_complete_and_reproducible",
            (
                f"{_HERE}/supply_test.py::"
                "test_every_package_of_an_image_is_pinned_with_hashes_and_free"
            ),
        ),
        (
            f"{_HERE}/supply_test.py::test_vulnerable_version_is_found",
            f"{_HERE}/supply_test.py::test_package_that_is_not_in_the_lock_is_refused",
        ),
        "This repository has published no signed image: the workflow for releases signs images, "
        "because this needs network access. The gate checks a committed snapshot of advisories.",
    ),
    Row(
        32,
        "Reproducible images, no credentials in the repository",
        (
            f"{_HERE}/images_test.py::test_same_entries_make_the_same_archive",
            f"{_HERE}/supply_test.py::test_repository_holds_no_credentials",
        ),
        (
            f"{_HERE}/images_test.py::test_different_content_makes_a_different_archive",
            f"{_HERE}/supply_test.py::test_planted_credential_is_found",
        ),
        "The base image is identical in each build. Layers of operators contain timestamps of "
        "docker and are not compared.",
    ),
    Row(
        33,
        "Nobody who may edit the objects of an operator can act as the operator",
        (
            f"{_HERE}/identity_test.py::test_editor_of_a_watched_namespace_cannot_become_an_operator",
            (
                f"{_HERE}/identity_test.py::"
                "test_every_command_of_the_pages_separates_the_operator_from_its_users"
            ),
            f"{_HERE}/identity_test.py::test_every_file_separates_the_operator_from_its_users",
        ),
        (
            (
                f"{_HERE}/identity_test.py::"
                "test_editor_of_the_namespace_of_an_operator_has_its_rights"
            ),
            f"{_HERE}/identity_test.py::test_command_that_mixes_operator_and_users_is_found",
        ),
    ),
)
"""All controls."""
