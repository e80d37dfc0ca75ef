"""Kinds of Multus, which attaches additional interfaces to pods; they are optional in a cluster."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import Kind

MULTUS_GROUP: Final = "k8s.cni.cncf.io"
"""API group of Multus and of the policies for attached interfaces."""
NETWORK_ATTACHMENT_DEFINITION: Final = Kind(
    MULTUS_GROUP, "v1", "NetworkAttachmentDefinition", "network-attachment-definitions"
)
"""A network that pods can be attached to; `spec.config` is the CNI configuration as JSON."""
MULTI_NETWORK_POLICY: Final = Kind(
    MULTUS_GROUP, "v1beta1", "MultiNetworkPolicy", "multi-networkpolicies"
)
"""A NetworkPolicy for attached interfaces: the same spec, plus the annotation `POLICY_FOR`."""
POLICY_FOR: Final = "k8s.v1.cni.cncf.io/policy-for"
"""Annotation of a MultiNetworkPolicy: the attachments that it covers, each as `namespace/name`."""
