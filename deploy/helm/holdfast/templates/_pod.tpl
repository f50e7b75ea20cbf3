{{- define "holdfast.labels" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "holdfast.pod" -}}
imagePullSecrets: {{ toJson .Values.imagePullSecrets }}
serviceAccountName: {{ .Values.serviceAccount.name }}
automountServiceAccountToken: false
securityContext: {runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
{{- end }}

{{- define "holdfast.image" -}}
image: {{ printf "%s:%s" (required "set image.repository" .Values.image.repository) (required "set image.tag" .Values.image.tag) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{- define "holdfast.container" -}}
{{ include "holdfast.image" . }}
envFrom:
  {{- range compact (append .Values.secrets .Values.temporal.secret) }}
  - secretRef: {name: {{ . | quote }}}
  {{- end }}
ports:
  - {name: metrics, containerPort: 9464}
  - {name: health, containerPort: 8402}
startupProbe: {httpGet: {path: /ready, port: health}, timeoutSeconds: 5, periodSeconds: 5, failureThreshold: 24}
livenessProbe: {httpGet: {path: /live, port: health}, timeoutSeconds: 5, periodSeconds: 20}
readinessProbe: {httpGet: {path: /ready, port: health}, timeoutSeconds: 5, periodSeconds: 10}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "holdfast.environment" -}}
- {name: TEMPORAL_ADDRESS, value: {{ required "set temporal.address" .Values.temporal.address | quote }}}
- {name: TEMPORAL_NAMESPACE, value: {{ .Values.temporal.namespace | quote }}}
- {name: HOLDFAST_ARCHIVE, value: {{ required "set archive" .Values.archive | quote }}}
- {name: HOLDFAST_HEALTH, value: "0.0.0.0:8402"}
- {name: HOLDFAST_METRICS, value: "0.0.0.0:9464"}
- {name: HOLDFAST_LOG, value: json}
- {name: HOME, value: /tmp}
{{- range $name, $value := .Values.environment }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
