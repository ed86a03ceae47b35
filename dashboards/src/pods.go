package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// Servers by the namespace and the name of their pod, which kube-state-metrics knows (kube_pod_info) and an agent does
// not: it knows the pod's uid. Without kube-state-metrics, the variables have no values and stay at All.

// ofChosenPods leaves out the servers that are in none of the chosen pods. With both variables at All it leaves out
// nothing, and reads nothing: all series lack the label no_such_label, and what is missing matches `.*`, but not the
// name of a namespace or of a pod. It is decided at the end of the time range.
const ofChosenPods = `
unless on (SERVER)
(
  ` + lastServers + `
  unless on (SERVER)
  (
    ` + lastServers + `
    and on (pod_uid)
    label_join(kube_pod_info{uid!="",namespace=~"$namespace",pod=~"$pod",no_such_label!~"$namespace$pod"} @ end(), "pod_uid", "", "uid")
  )
)`

// lastServers returns the servers of the time range. If a name was used again, by a server in another pod or in none,
// it is the server that is alive at the end: earlier ones must not lend it their pods.
const lastServers = `(evictscope_server_info{LABELS,no_such_label!~"$namespace$pod"} @ end() or on (SERVER) last_over_time(evictscope_server_info{LABELS,no_such_label!~"$namespace$pod"}[$__range] @ end()))`

// podOfServer returns a series for each server in a pod that is known, with the labels namespace and pod.
func podOfServer(of selection) string {
	return promQL(of, `max by (SERVER, namespace, pod) (
  evictscope_server_info{LABELS,pod_uid!=""}
  * on (pod_uid) group_left (namespace, pod)
  max by (pod_uid, namespace, pod) (label_join(kube_pod_info, "pod_uid", "", "uid"))
)`)
}

// withPods adds the variables of ofChosenPods to a dashboard. They offer the namespaces and pods that have servers.
func withPods(made *dashboard.DashboardBuilder) *dashboard.DashboardBuilder {
	return made.
		WithVariable(podVariable("namespace", "Namespace", "kube_pod_info")).
		WithVariable(podVariable("pod", "Pod", `kube_pod_info{namespace=~"$namespace"}`))
}

func podVariable(label, title, pods string) *dashboard.QueryVariableBuilder {
	query := promQL(allServers, "query_result(group by ("+label+") ("+pods+` and on (uid) label_join(evictscope_server_info{LABELS}, "uid", "", "pod_uid")))`)
	return anyOf(labelVariable(label, title, query).Regex(`/` + label + `="([^"]+)"/`)).AllValue(".*")
}
