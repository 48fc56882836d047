#!/bin/sh
# Prints the hub's Secret with which Entrepot reads one worker: a kubeconfig with a token of its account there.
# Run it against the worker, and apply what it prints to the hub:
#
#   deploy/worker/kubeconfig-secret.sh NAME [DURATION] | kubectl --context HUB apply --server-side -f -
#
# NAME is the cluster's name in fleet.yaml. KUBECONFIG (and its current context) say how the worker is reached; SERVER,
# when set, is the address to write instead of the kubeconfig's. Run it again before DURATION is over (default 8760h; the
# cluster may grant less, and the script says so): the daemon reads the Secret every 30 seconds and needs no restart.
set -eu

name=${1:?usage: kubeconfig-secret.sh NAME [DURATION]}
duration=${2:-8760h}
kubectl=${KUBECTL:-kubectl}

read_cluster() {
  "$kubectl" config view --raw --minify --flatten -o "jsonpath={.clusters[0].cluster.$1}"
}

server=${SERVER:-$(read_cluster server)}
authority=$(read_cluster certificate-authority-data)
if [ -z "$authority" ]; then
  echo "error: the kubeconfig names no certificate authority; MultiKueue and Entrepot refuse a cluster without one" >&2
  exit 1
fi
token=$("$kubectl" create token entrepot-reader --namespace entrepot-system --duration "$duration")

cat <<END
apiVersion: v1
kind: Secret
metadata:
  name: $name-entrepot
  namespace: entrepot-system
  labels:
    app.kubernetes.io/name: entrepot
type: Opaque
stringData:
  kubeconfig: |
    apiVersion: v1
    kind: Config
    clusters:
      - name: $name
        cluster:
          server: $server
          certificate-authority-data: $authority
    users:
      - name: entrepot-reader
        user:
          token: $token
    contexts:
      - name: $name
        context:
          cluster: $name
          user: entrepot-reader
    current-context: $name
END
