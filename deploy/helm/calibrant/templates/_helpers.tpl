{{- define "calibrant.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "calibrant.selector" -}}
app.kubernetes.io/name: calibrant
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "calibrant.labels" -}}
{{ include "calibrant.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "calibrant.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* At most as many workers as partitions: further ones would have no work. */}}
{{- define "calibrant.workers" -}}
{{- min (int .count) (int .context.Values.partitions) -}}
{{- end -}}

{{- define "calibrant.storeSecret" -}}
{{- .Values.store.existingSecret | default (printf "%s-store" (include "calibrant.name" .)) -}}
{{- end -}}

{{- define "calibrant.keysSecret" -}}
{{- .Values.keys.existingSecret | default (printf "%s-keys" (include "calibrant.name" .)) -}}
{{- end -}}

{{/* What service and workers share: the store and the settings that must agree. */}}
{{- define "calibrant.env" -}}
{{- if .Values.valkey.enabled -}}
- name: STORE_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .Release.Name }}-valkey, key: password}
- name: CALIBRANT_REDIS_URL
  value: redis://:$(STORE_PASSWORD)@{{ .Release.Name }}-valkey:6379/0
{{- else }}
- name: CALIBRANT_REDIS_URL
  valueFrom:
    secretKeyRef: {name: {{ include "calibrant.storeSecret" . }}, key: {{ .Values.store.key }}}
{{- end }}
- name: CALIBRANT_DURABILITY
  value: {{ .Values.durability }}
- name: CALIBRANT_PARTITIONS
  value: {{ .Values.partitions | quote }}
{{- end -}}

{{- define "calibrant.envOf" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "calibrant.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "calibrant.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "calibrant.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "calibrant.selector" .context | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* A release that cannot work is refused when it is rendered. */}}
{{- define "calibrant.check" -}}
{{- $store := .Values.store -}}
{{- if and (not .Values.valkey.enabled) (not $store.existingSecret) (not $store.url) -}}
{{- fail "Received no store; expected store.existingSecret, store.url, or valkey.enabled for a trial." -}}
{{- end -}}
{{- if and .Values.valkey.enabled (or $store.existingSecret $store.url) -}}
{{- fail "Received valkey.enabled and a store; expected one of them." -}}
{{- end -}}
{{- if and (not .Values.keys.existingSecret) (not .Values.keys.document) (not .Values.keys.create) -}}
{{- fail "Received no keys; expected keys.existingSecret or keys.document, or keys.create: true for a trial." -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "Received no ingress.host; expected the name that clients use, or ingress.enabled: false if a gateway of your own is in front." -}}
{{- end -}}
{{- if and .Values.workers.autoscaling.enabled (not .Values.workers.autoscaling.prometheusAddress) -}}
{{- fail "Received no workers.autoscaling.prometheusAddress; expected the address of Prometheus, from which KEDA reads the backlog." -}}
{{- end -}}
{{- if and .Values.valkey.enabled (ne .Values.durability "everysec") -}}
{{- fail (printf "Received durability %s; expected everysec: the store for trials has no replica." .Values.durability) -}}
{{- end -}}
{{- end -}}
