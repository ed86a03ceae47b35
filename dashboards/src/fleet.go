package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/table"
)

// stalledServers keeps the servers that stalled clients for a second or more in the time range, or failed to evict.
// This is decided at the end of the range, so that no line comes and goes.
const stalledServers = `
and on (SERVER)
(
  sum by (SERVER) (increase(evictscope_stall_seconds_total{LABELS}[$__range] @ end())) >= 1
  or
  sum by (SERVER) (increase(evictscope_eviction_calls_total{LABELS,result="fail"}[$__range] @ end())) > 0
)`

// fleet returns the dashboard about all servers of all hosts: which of them hurt, how much, and where to look next.
func fleet() *dashboard.DashboardBuilder {
	made := withPods(newDashboard("evictscope / Fleet", fleetUID,
		"All Redis servers of all hosts: whose clients wait, how long and why, and where to look next. In Kubernetes with kube-state-metrics they can be chosen by namespace and pod.").
		Time("now-6h", "now").
		WithVariable(anyOf(instances())))

	numbers := number("All servers",
		"over 0.1 s, over 1 s: how many times a request waited for longer than that, in the time range. Red: requests over 1 s, servers whose clients were stalled for a second or more, the time stalled of all, and servers on which evictions failed. watched: servers that an agent watches now. not watched: servers that run beside an agent and cannot be watched (the dashboard Agent says why). agents down: Prometheus cannot scrape them.",
		"none", thresholds(grey),
		query("G", allServers, "sum("+waited("0.1")+"CHOSEN)", "over 0.1 s"),
		query("H", allServers, "sum("+waited("1")+"CHOSEN)", "over 1 s"),
		query("A", allServers, "count(evictscope_server_info{LABELS}CHOSEN)", "watched"),
		query("B", allServers, `count(sum by (SERVER) (increase(evictscope_stall_seconds_total{LABELS}[$__range])) >= 1CHOSEN) or vector(0)`, "stalled"),
		query("C", allServers, `sum(increase(evictscope_stall_seconds_total{LABELS}[$__range])CHOSEN)`, "time stalled"),
		query("D", allServers, `count(sum by (SERVER) (increase(evictscope_eviction_calls_total{LABELS,result="fail"}[$__range])) > 0CHOSEN) or vector(0)`, "failed to evict"),
		query("E", allServers, "sum(evictscope_servers_unwatched{LABELS})", "not watched"),
		query("F", allAgents, "count(up{LABELS} == 0) or vector(0)", "agents down")).
		GridPos(at(0, 0, fullWidth, numbersHeight))
	forEach(numbers, []string{"over 1 s", "stalled", "failed to evict", "time stalled"}, steps(green, step{1, red}))
	forEach(numbers, []string{"over 0.1 s", "not watched", "agents down"}, steps(green, step{1, orange}))
	made.WithPanel(numbers.OverrideByName("time stalled", []dashboard.DynamicConfigValue{property("unit", "s")}))

	made.WithPanel(tableOfServers().GridPos(at(0, 3, fullWidth, 12)))

	made.WithPanel(lines("Mean wait of a command, by server",
		"How long a request waited for its answer, on average, of the servers that stalled clients for a second or more in the time range, or failed to evict.",
		"s",
		query("A", allServers, meanWait+stalledServers+"CHOSEN", "{{instance}} {{server}}")).
		GridPos(at(0, 15, halfWidth, 8)))

	byCause := lines("Stalled, by cause",
		"For how many seconds a second clients were stalled, of all servers, by what took most of the main thread's time meanwhile: 2 is two servers all the time. cpu: it wanted a CPU and had none. blocked: it slept elsewhere than in its event loop.",
		"none",
		query("A", allServers, `sum by (cause) (rate(evictscope_stall_seconds_total{LABELS}[$__rate_interval])CHOSEN)`, "{{cause}}")).
		FillOpacity(40).
		LineWidth(0).
		Stacking(stacked())
	made.WithPanel(inColours(byCause, causes).GridPos(at(halfWidth, 15, halfWidth, 8)))

	made.WithPanel(lines("Stalled, by server",
		"Share of the time in which clients of each of these servers were stalled.",
		"percentunit",
		query("A", allServers, `sum by (SERVER) (rate(evictscope_stall_seconds_total{LABELS}[$__rate_interval]))`+stalledServers+"CHOSEN", "{{instance}} {{server}}")).
		GridPos(at(0, 23, halfWidth, 10)))

	made.WithPanel(timeline("Impact and phases of these servers",
		"Red: clients were stalled, dark red: evictions failed. Else the phase of the cycle: not_saturated (green), saturated (purple), reclaim (blue). Each step shows the worst in it.",
		append(phases, impacts...),
		query("A", allServers, "("+impactInStep+" > 0\nor\n"+phaseInStep+")"+stalledServers+"CHOSEN", "{{instance}} {{server}}")).
		GridPos(at(halfWidth, 23, halfWidth, 10)))
	return made
}

// tableOfServers has one row for each server.
func tableOfServers() *table.PanelBuilder {
	seconds, share := property("unit", "s"), property("unit", "percentunit")
	columns := []column{
		{"server", "Server", []dashboard.DynamicConfigValue{link("Eviction cycle of this server", cycleUID, "Job", "Instance", "Server")}},
		{"namespace", "Namespace", nil},
		{"pod", "Pod", nil},
		{"instance", "Instance", nil},
		{"job", "Job", nil},
		{"Value #M", "Waited over 1 s", coloured(grey, step{1, red})},
		{"Value #N", "Mean wait", []dashboard.DynamicConfigValue{seconds}},
		{"Value #C", "Evictions failed for", append(coloured(grey, step{1, red}), seconds)},
		{"Value #B", "Stalled", append(coloured(grey, step{1, red}), seconds)},
		{"Value #D", "Now", []dashboard.DynamicConfigValue{property("mappings", mapping(append(phases, impacts...))), colouredText()}},
		{"Value #E", "Self-amplifying bursts", coloured(grey, step{1, orange})},
		{"Value #F", "Stalling bursts", coloured(grey, step{1, orange})},
		{"Value #G", "Other bursts", nil},
		{"Value #O", "Keys lost", coloured(grey, step{1, orange})},
		{"Value #H", "Longest call", append(coloured(grey, step{10e-3, orange}, step{100e-3, red}), seconds)},
		{"Value #I", "Memory of limit", []dashboard.DynamicConfigValue{share}},
		{"Value #J", "Cost", append(coloured(grey, step{0.01, orange}), share)},
		{"Value #K", "Not found", append(coloured(grey, step{1, orange}), link("What was not found", agentUID, "Job", "Instance"))},
		{"version", "Version", nil},
	}
	if cluster != "" {
		columns = append(columns, column{cluster, "Cluster", nil})
	}
	return rows("Servers",
		"One row for each server; a click on a heading sorts by it, a click on a server leads to its eviction cycle. Waits, stalls, failures, bursts and the longest call are those of the time range. Mean wait: how long a request waited for its answer. Stalled: for how long some request had waited for 0.1 s or longer. Now: the phase, or the impact in the last minute. Cost: of the probes, as a share of the server's main thread. Keys lost: how often a tenth of all keys went within a minute. Not found: how many items, which leads to what they are. A cell is empty where nothing is known. Thresholds: a request over 1 s, stalled or failed for a second is red, a call of 10 ms orange and of 100 ms red, a self-amplifying or stalling burst, lost keys, a cost of 1 % and anything not found orange.",
		columns,
		[]string{"Time", "Value #A", "Value #L"},
		now("A", "max by (SERVER, version) (evictscope_server_info{LABELS})CHOSEN"),
		now("B", `sum by (SERVER) (increase(evictscope_stall_seconds_total{LABELS}[$__range]))CHOSEN`),
		// A minute in which a call failed. The number of calls would be too low if they are sampled.
		now("C", `(60 * sum by (SERVER) (sum_over_time((increase(evictscope_eviction_calls_total{LABELS,result="fail"}[1m]) > bool 0)[$__range:1m])) or 0 * sum by (SERVER) (evictscope_eviction_calls_total{LABELS,result="fail"}))CHOSEN`),
		now("D", phaseNow+"CHOSEN"),
		now("E", finished("self_amplifying")+"CHOSEN"),
		now("F", finished("stalling")+"CHOSEN"),
		now("G", finished("plain|unknown")+"CHOSEN"),
		now("H", "max by (SERVER) (max_over_time(evictscope_eviction_call_longest_seconds{LABELS}[$__range])) > 0CHOSEN"),
		now("I", "max by (SERVER) ("+saturation+")CHOSEN"),
		now("J", "max by (SERVER) (evictscope_overhead_ratio{LABELS})CHOSEN"),
		now("K", "count by (SERVER) (evictscope_not_found{LABELS} or evictscope_plan_withdrawn{LABELS} > 0)CHOSEN"),
		now("L", podOfServer(allServers)+"CHOSEN"),
		now("M", waited("1")+"CHOSEN"),
		now("N", "sum by (SERVER) (increase(evictscope_client_wait_seconds_total{LABELS}[$__range])) / (sum by (SERVER) (increase(evictscope_commands_processed_total{LABELS}[$__range])) > 0)CHOSEN"),
		now("O", "round(sum by (SERVER) (increase(evictscope_key_losses_total{LABELS}[$__range])))CHOSEN")).
		SortBy(sortedBy("Evictions failed for", "Waited over 1 s", "Stalled"))
}
