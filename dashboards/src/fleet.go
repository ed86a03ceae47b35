package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// toServer is the link of a row: the eviction cycle of its server, in the same time range.
const toServer = "/d/" + cycleUID + "?${__url_time_range}&${datasource:queryparam}" +
	"&var-job=${__data.fields.Job:percentencode}" +
	"&var-instance=${__data.fields.Instance:percentencode}" +
	"&var-server=${__data.fields.Server:percentencode}"

func link() dashboard.DynamicConfigValue {
	return property("links", []map[string]any{{
		"title": "Eviction cycle of this server", "url": toServer, "targetBlank": false,
	}})
}

func now(refID, expression string) *prometheus.DataqueryBuilder {
	return tableQuery(refID, allServers, expression).Instant()
}

// fleet is about all servers of all hosts, and which of them need attention.
func fleet() *dashboard.DashboardBuilder {
	made := newDashboard("evictscope / Fleet", fleetUID,
		"All Redis servers of all hosts: which of them burst, how often and how badly, and which are close to maxmemory. It needs the recording rules (recording.yaml).").
		Time("now-24h", "now").
		WithVariable(allInstances())

	made.WithPanel(number("Servers watched", "Redis servers that an agent watches now.", "none", thresholds(blue),
		query("A", allServers, "count(evictscope_server_info{LABELS})", "")))
	made.WithPanel(number("Servers with bursts", "Servers with a self-amplifying burst in the time range. Any is too many.", "none",
		thresholds(green, step{1, red}),
		query("A", allServers, `count(sum by (job, instance, server) (increase(evictscope_bursts_total{LABELS,kind="self_amplifying"}[$__range])) > 0) or vector(0)`, "")))
	made.WithPanel(number("Self-amplifying bursts", "Self-amplifying bursts in the time range, on all servers.", "short",
		thresholds(green, step{1, red}),
		query("A", allServers, `round(sum(increase(evictscope_bursts_total{LABELS,kind="self_amplifying"}[$__range])))`, "")).
		Decimals(0))
	made.WithPanel(number("In saturated now", "Servers that evict now. This alone is no problem: calm caches evict all the time.", "none",
		thresholds(blue),
		query("A", allServers, `sum(evictscope_phase{LABELS,phase="saturated"})`, "")))
	made.WithPanel(number("Within 5 % of maxmemory", "Servers at 95 % of their limit or above. This is normal for a cache, but not for a store.", "none",
		thresholds(green, step{1, orange}),
		query("A", allServers, "count(server:evictscope_memory_saturation:ratio{LABELS} >= 0.95) or vector(0)", "")))
	made.WithPanel(number("Agents down", "Agents that Prometheus cannot scrape. The bursts of their servers are not seen.", "none",
		thresholds(green, step{1, red}),
		query("A", allAgents, "count(up{LABELS} == 0) or vector(0)", "")))

	seconds, share := property("unit", "s"), property("unit", "percentunit")
	made.WithPanel(rows("Servers",
		"One row for each server. A click on its name leads to its eviction cycle. Bursts are counted in the time range, and their means are over the last hour. At maxmemory in: when memory reaches the limit if it keeps growing as in the last 30 minutes; empty if it does not grow. Thresholds: any self-amplifying burst is red; throughput in bursts is orange below 90 % and red below 50 %; memory is orange from 80 % and red from 95 %; at the limit within an hour is orange, within 10 minutes red; overhead is orange from 1 %.",
		[]column{
			{"server", "Server", []dashboard.DynamicConfigValue{link()}},
			{"instance", "Instance", nil},
			{"job", "Job", nil},
			{"version", "Version", nil},
			{"Value #B", "Self-amplifying bursts", append(coloured(grey, step{0.5, red}), property("decimals", 0))},
			{"Value #C", "Plain bursts", []dashboard.DynamicConfigValue{property("decimals", 0)}},
			{"Value #D", "Burst lasts", []dashboard.DynamicConfigValue{seconds}},
			{"Value #E", "Throughput in burst", append(coloured(red, step{0.5, orange}, step{0.9, grey}), share)},
			{"Value #F", "Client buffers grow by", []dashboard.DynamicConfigValue{property("unit", "bytes")}},
			{"Value #G", "Memory of limit", append(coloured(grey, step{0.8, orange}, step{0.95, red}), share)},
			{"Value #H", "At maxmemory in", append(coloured(red, step{600, orange}, step{3600, grey}), seconds)},
			{"Value #I", "Time in not_saturated", []dashboard.DynamicConfigValue{share}},
			{"Value #J", "Time in saturated", []dashboard.DynamicConfigValue{share}},
			{"Value #K", "Time in reclaim", []dashboard.DynamicConfigValue{share}},
			{"Value #L", "Commands", []dashboard.DynamicConfigValue{property("unit", "ops")}},
			{"Value #M", "Overhead", append(coloured(grey, step{0.01, orange}), share)},
		},
		[]string{"Time", "Value #A"},
		now("A", "max by (job, instance, server, version) (evictscope_server_info{LABELS})"),
		now("B", `sum by (job, instance, server) (increase(evictscope_bursts_total{LABELS,kind="self_amplifying"}[$__range]))`),
		now("C", `sum by (job, instance, server) (increase(evictscope_bursts_total{LABELS,kind="plain"}[$__range]))`),
		now("D", "max by (job, instance, server) (server:evictscope_burst_duration_seconds:mean1h{LABELS})"),
		now("E", "max by (job, instance, server) (server:evictscope_burst_throughput:mean1h{LABELS})"),
		now("F", "max by (job, instance, server) (server:evictscope_burst_client_buffer_growth_bytes:mean1h{LABELS})"),
		now("G", "max by (job, instance, server) (server:evictscope_memory_saturation:ratio{LABELS})"),
		now("H", "max by (job, instance, server) (server:evictscope_maxmemory_reached:seconds{LABELS})"),
		now("I", `max by (job, instance, server) (server:evictscope_phase:share1h{LABELS,phase="not_saturated"})`),
		now("J", `max by (job, instance, server) (server:evictscope_phase:share1h{LABELS,phase="saturated"})`),
		now("K", `max by (job, instance, server) (server:evictscope_phase:share1h{LABELS,phase="reclaim"})`),
		now("L", "max by (job, instance, server) (server:evictscope_commands_processed:rate1m{LABELS})"),
		now("M", "max by (job, instance, server) (evictscope_overhead_ratio{LABELS})")).
		Height(14).
		SortBy(sortedBy("Self-amplifying bursts")))

	made.WithPanel(timeline("Phases of the servers that burst",
		"Servers with a self-amplifying burst in the time range: not_saturated (green), reclaim (blue), saturated (red). Each step shows the worst phase in it.",
		phases,
		query("A", allServers, phaseQuery+`
and on (job, instance, server)
(sum by (job, instance, server) (increase(evictscope_bursts_total{LABELS,kind="self_amplifying"}[$__range] @ end())) > 0)`,
			"{{instance}} {{server}}")).
		Height(9))

	made.WithPanel(lines("Self-amplifying bursts an hour, highest 20",
		"How often servers burst. The cycle in GitLab's article has 4 to 8 bursts an hour. Threshold: 2 an hour, which is a cycle.",
		"none",
		query("A", allServers, `topk(20, server:evictscope_bursts:increase1h{LABELS,kind="self_amplifying"})`, "{{instance}} {{server}}")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{2, red})).
		ThresholdsStyle(dashed()))

	made.WithPanel(lines("Throughput in bursts, lowest 20",
		"How bad the bursts are: commands a second in the bursts of an hour, as a share of those before. GitLab's article has 20 %. Threshold: below 50 %.",
		"percentunit",
		query("A", allServers, "bottomk(20, server:evictscope_burst_throughput:mean1h{LABELS})", "{{instance}} {{server}}")).
		Span(halfWidth).
		Thresholds(thresholds(red, step{0.5, orange}, step{0.9, green})).
		ThresholdsStyle(dashed()))

	made.WithPanel(lines("Memory of limit, highest 20",
		"used_memory as a share of maxmemory. Thresholds: 80 %, where the alert begins to look ahead, and 100 %.",
		"percentunit",
		query("A", allServers, "topk(20, server:evictscope_memory_saturation:ratio{LABELS})", "{{instance}} {{server}}")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{0.8, orange}, step{1, red})).
		ThresholdsStyle(dashed()))

	made.WithPanel(lines("At maxmemory in, shortest 20",
		"When memory reaches the limit if it keeps growing as in the last 30 minutes. Servers that are at the limit, or do not grow, are not shown. Threshold: an hour.",
		"s",
		query("A", allServers, "bottomk(20, server:evictscope_maxmemory_reached:seconds{LABELS} and on (job, instance, server) server:evictscope_memory_saturation:ratio{LABELS} < 1)", "{{instance}} {{server}}")).
		Span(halfWidth).
		Thresholds(thresholds(red, step{3600, green})).
		ThresholdsStyle(dashed()))

	made.WithPanel(lines("Time in each phase",
		"Share of the last hour in each phase, as a mean of all servers. No threshold, because calm caches are always in saturated.",
		"percentunit",
		query("A", allServers, "avg by (phase) (server:evictscope_phase:share1h{LABELS})", "{{phase}}")).
		Span(halfWidth).
		Max(1).
		FillOpacity(30).
		Stacking(stacked()).
		OverrideByName("not_saturated", []dashboard.DynamicConfigValue{fixedColour(green)}).
		OverrideByName("saturated", []dashboard.DynamicConfigValue{fixedColour(red)}).
		OverrideByName("reclaim", []dashboard.DynamicConfigValue{fixedColour(blue)}))

	made.WithPanel(lines("Main thread CPU in evicting calls, highest 20",
		"Share of one CPU that evictions take on each server. Threshold: 50 %, where evictions take more than is left for commands.",
		"percentunit",
		query("A", allServers, `topk(20, server:evictscope_main_thread_cpu:rate1m{LABELS,activity="eviction"})`, "{{instance}} {{server}}")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{0.5, orange})).
		ThresholdsStyle(dashed()))
	return made
}
