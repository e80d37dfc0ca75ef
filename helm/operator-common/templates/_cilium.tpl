{{/*
CiliumNetworkPolicies, if networkPolicy.flavor is cilium, in place of the NetworkPolicies. The rules are the same,
but name the API server and the clients in the cluster by their entities: Cilium does not apply CIDRs to nodes
of the cluster, so a NetworkPolicy cannot limit the API server to its addresses.
*/}}

{{/* operator-common.ciliumPolicy: the rules of operator-common.networkPolicy. */}}
{{- define "operator-common.ciliumPolicy" -}}
{{- if eq (include "operator-common.networkPolicyFlavor" .) "cilium" -}}
{{- $metrics := dict "ports" (list (dict "port" "metrics")) "from" .Values.networkPolicy.metricsFrom -}}
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata:
  name: {{ include "operator-common.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  endpointSelector:
    matchLabels:
      {{- include "operator-common.selectorLabels" . | nindent 6 }}
  ingress:
    {{- include "operator-common.ciliumRules" (dict "direction" "from" "rules" (list $metrics)) | nindent 4 }}
    # The kubelet and the test.
    - fromEntities: [cluster]
      toPorts:
        - ports:
            - port: probes
              protocol: TCP
    {{- if include "operator-common.hasWebhooks" . }}
    # The API server can call webhooks through an agent on a node or in a pod.
    - fromEntities: [kube-apiserver, cluster]
      toPorts:
        - ports:
            - port: webhook
              protocol: TCP
    {{- end }}
  egress:
    {{- include "operator-common.ciliumEgressToServer" . | nindent 4 }}
    {{- with include "operator-common.egressToOthers" . | fromYamlArray }}
    {{- include "operator-common.ciliumRules" (dict "direction" "to" "rules" .) | nindent 4 }}
    {{- end }}
{{- end -}}
{{- end -}}

{{/* operator-common.hooksCiliumPolicy: the rules of operator-common.hooksNetworkPolicy. */}}
{{- define "operator-common.hooksCiliumPolicy" -}}
{{- if eq (include "operator-common.networkPolicyFlavor" .) "cilium" -}}
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata:
  name: {{ include "operator-common.fullname" . }}-hooks
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "operator-common.labels" . | nindent 4 }}
spec:
  endpointSelector:
    matchLabels:
      app.kubernetes.io/name: {{ include "operator-common.id" . }}
      app.kubernetes.io/instance: {{ .Release.Name }}
    matchExpressions:
      - key: app.kubernetes.io/component
        operator: In
        values: [cleanup, test]
  # An empty rule allows nothing, while an empty list would allow everything.
  ingress:
    - {}
  egress:
    {{- include "operator-common.ciliumEgressToServer" . | nindent 4 }}
    - toEndpoints:
        - matchLabels:
            {{- include "operator-common.selectorLabels" . | nindent 12 }}
      toPorts:
        - ports:
            - port: {{ .Values.ports.probes | quote }}
              protocol: TCP
{{- end -}}
{{- end -}}

{{/* operator-common.ciliumEgressToServer: egress to DNS and the API server. */}}
{{- define "operator-common.ciliumEgressToServer" -}}
{{- $dns := include "operator-common.egressToDns" . | fromYamlArray -}}
{{- include "operator-common.ciliumRules" (dict "direction" "to" "rules" $dns) }}
- toEntities: [kube-apiserver]
  toPorts: &apiServer
    - ports:
        {{- range .Values.networkPolicy.apiServer.ports }}
        - port: {{ . | quote }}
          protocol: TCP
        {{- end }}
{{- with .Values.networkPolicy.apiServer.cidrs }}
- toCIDR:
    {{- toYaml . | nindent 4 }}
  toPorts: *apiServer
{{- end }}
{{- end -}}

{{/*
operator-common.ciliumRules: rules of a NetworkPolicy as rules of a CiliumNetworkPolicy, one for each peer. Takes
rules and direction, which is from or to.
*/}}
{{- define "operator-common.ciliumRules" -}}
{{- $direction := .direction -}}
{{- $result := list -}}
{{- range $rule := .rules -}}
{{- $ports := list -}}
{{- range $rule.ports -}}
{{- $port := dict "protocol" (.protocol | default "TCP") "port" (.port | default 0 | toString) -}}
{{- if .endPort -}}
{{- $_ := set $port "endPort" .endPort -}}
{{- end -}}
{{- $ports = append $ports $port -}}
{{- end -}}
{{- $common := dict -}}
{{- if $ports -}}
{{- $_ := set $common "toPorts" (list (dict "ports" $ports)) -}}
{{- end -}}
{{- $peers := get $rule $direction | default list -}}
{{- range $peer := $peers -}}
{{- $one := deepCopy $common -}}
{{- if $peer.ipBlock -}}
{{- $_ := set $one (printf "%sCIDRSet" $direction) (list $peer.ipBlock) -}}
{{- else -}}
{{- $_ := set $one (printf "%sEndpoints" $direction) (list (include "operator-common.ciliumSelector" $peer | fromJson)) -}}
{{- end -}}
{{- $result = append $result $one -}}
{{- end -}}
{{- if not $peers -}}
{{- if not $ports -}}
{{- $_ := set $common (printf "%sEntities" $direction) (list "all") -}}
{{- end -}}
{{- $result = append $result $common -}}
{{- end -}}
{{- end -}}
{{- toYaml $result -}}
{{- end -}}

{{/*
operator-common.ciliumSelector: the pods that a peer of a NetworkPolicy selects, as JSON. Cilium adds the namespace
of the policy if the selector names neither a namespace nor a label of one.
*/}}
{{- define "operator-common.ciliumSelector" -}}
{{- $labels := dict -}}
{{- $expressions := list -}}
{{- $sources := dict "k8s:" (.podSelector | default dict) "k8s:io.cilium.k8s.namespace.labels." (.namespaceSelector | default dict) -}}
{{- range $prefix, $selector := $sources -}}
{{- range $name, $value := $selector.matchLabels -}}
{{- $_ := set $labels (printf "%s%s" $prefix $name) $value -}}
{{- end -}}
{{- range $selector.matchExpressions -}}
{{- $expressions = append $expressions (set (deepCopy .) "key" (printf "%s%s" $prefix .key)) -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey . "namespaceSelector") (not .namespaceSelector) -}}
{{- $expressions = append $expressions (dict "key" "k8s:io.kubernetes.pod.namespace" "operator" "Exists") -}}
{{- end -}}
{{- $result := dict -}}
{{- if $labels -}}
{{- $_ := set $result "matchLabels" $labels -}}
{{- end -}}
{{- if $expressions -}}
{{- $_ := set $result "matchExpressions" $expressions -}}
{{- end -}}
{{- toJson $result -}}
{{- end -}}
