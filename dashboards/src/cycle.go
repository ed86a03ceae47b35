package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// The first screen, of 1920 × 1080 pixels, has room for 26 rows of the grid: numbers, then two columns whose
// panels share a time axis.
const (
	numbersHeight = 3
	screenHeight  = 26
)

// evictionCycle is about one server.
func evictionCycle() *dashboard.DashboardBuilder {
	made := newDashboard("evictscope / Eviction cycle", cycleUID,
		"One Redis server: what evictions and expire cycles do to it now, and its cycle of bursts (not_saturated, saturated, reclaim). Red is impact: stalls, and evictions that fail.").
		Time("now-1h", "now").
		WithVariable(instances()).
		WithVariable(labelVariable("server", "Server",
			"label_values(evictscope_server_info{"+allServers.matchers()+"}, server)")).
		Annotation(dashboard.NewAnnotationQueryBuilder().
			Name("Bursts").
			Datasource(dataSource()).
			Enable(true).
			IconColor(orange).
			Target(query("Anno", oneServer, "evictscope_last_burst_start_timestamp_seconds{LABELS} * 1000", "").
				Interval(scrapeInterval)).
			UseValueForTime(true).
			TitleFormat("Burst begins").
			TextFormat("Redis server {{server}} of {{instance}}: first evicting call").
			TagKeys("server"))
	numbersOfServer(made)
	leftColumn(made)
	rightColumn(made)
	foldedRows(made)
	return made
}

// numbersOfServer are one row: what goes on, and how much it hurt.
func numbersOfServer(made *dashboard.DashboardBuilder) {
	made.WithPanel(number("Phase",
		"What the server is doing now. Red: stalled for a second or more, or evictions failed, in the last minute. Else the phase of the cycle: not_saturated (green), saturated (purple), reclaim (blue). A cache at its limit is in saturated all the time, which is no problem by itself.",
		"none", thresholds(green),
		query("A", oneServer, phaseNow, "phase")).
		GridPos(at(0, 0, 4, numbersHeight)).
		Mappings(mapping(append(phases, impacts...))))
	made.WithPanel(number("Stalled in the time range",
		"Time in which evictions, or expire cycles, took a fifth or more of a main thread that had no time to spare. Counted as it happens. Main thread by activity shows which of them it was. Threshold: a second.",
		"s", thresholds(green, step{1, red}),
		query("A", oneServer, `sum(increase(evictscope_stall_seconds_total{LABELS}[$__range]))`, "stalled")).
		GridPos(at(4, 0, 3, numbersHeight)))
	made.WithPanel(number("Memory of limit",
		"Memory that counts against maxmemory (used memory less replication and AOF buffers), as a share of it. No threshold: a cache is at 100 %, and a store should not be.",
		"percentunit", thresholds(blue),
		query("A", oneServer, saturation+" or -1 * (evictscope_maxmemory_bytes{LABELS} == bool 0)", "memory")).
		Mappings(mapping([]state{{"-1", "no limit", grey}})).
		GridPos(at(7, 0, 3, numbersHeight)))
	made.WithPanel(number("Longest eviction call",
		"The longest evicting call in the time range. No client is answered during a call. Redis stops a call at 500 µs by default, but not while it frees one big key. Thresholds: 10 ms orange, 100 ms red.",
		"s", thresholds(green, step{10e-3, orange}, step{100e-3, red}),
		query("A", oneServer, "max_over_time(evictscope_eviction_call_longest_seconds{LABELS}[$__range])", "longest")).
		GridPos(at(10, 0, 3, numbersHeight)))
	made.WithPanel(number("Bursts in the time range, by kind, and the last one",
		"Finished bursts. self-amplifying: evictions starved the commands, so that client buffers grew, which needs more evictions. unknown: what would decide was not known. plain: any other. last: when the last burst began, or that it is under way.",
		"none", thresholds(grey),
		query("A", oneServer, finished("self_amplifying"), "self-amplifying"),
		query("B", oneServer, finished("unknown"), "unknown"),
		query("C", oneServer, finished("plain"), "plain"),
		query("D", oneServer, "0 * (evictscope_burst_open{LABELS} == 1) or 1000 * evictscope_last_burst_start_timestamp_seconds{LABELS}", "last")).
		OverrideByName("self-amplifying", []dashboard.DynamicConfigValue{steps(grey, step{1, orange})}).
		OverrideByName("last", []dashboard.DynamicConfigValue{
			property("unit", "dateTimeFromNow"),
			property("mappings", mapping([]state{{"0", "under way", orange}})),
		}).
		GridPos(at(13, 0, 8, numbersHeight)))
	made.WithPanel(number("Cost",
		"What the probes cost this server, as a share of its main thread in the last 10 s. Threshold: 1 %, the default of --overhead-budget.",
		"percentunit", thresholds(green, step{0.01, orange}),
		query("A", oneServer, "evictscope_overhead_ratio{LABELS}", "cost")).
		Decimals(2).
		GridPos(at(21, 0, 3, numbersHeight)))
}

// finished returns the number of bursts of a kind in the time range.
func finished(kind string) string {
	return `round(sum by (SERVER) (increase(evictscope_bursts_total{LABELS,kind="` + kind + `"}[$__range])))`
}

// leftColumn is what the server does: phase, memory, buffers, commands.
func leftColumn(made *dashboard.DashboardBuilder) {
	made.WithPanel(timeline("Phase of the cycle, and its impact",
		"Above: not_saturated (green), saturated (purple), reclaim (blue). Each step shows the last phase in it that is not green, so no burst is too short to be seen. Below: red where evictions or expire cycles stalled the server, dark red where evictions failed.",
		append(append([]state{{"-1", "no impact", noColour}}, phases...), impacts...),
		query("A", oneServer, phaseInStep, "phase"),
		query("B", oneServer, impactInStep, "impact")).
		GridPos(at(0, 3, halfWidth, 4)))

	made.WithPanel(curves("Counted memory and its limit",
		"Memory that counts against maxmemory: used memory, less replication and AOF buffers. A sawtooth that touches the dashed line is the cycle. The axis does not begin at zero.",
		"bytes",
		query("A", oneServer, countedMemory, "counted memory"),
		query("B", oneServer, "evictscope_maxmemory_bytes{LABELS} > 0", "maxmemory")).
		FillOpacity(0).
		OverrideByName("counted memory", []dashboard.DynamicConfigValue{fixedColour(blue)}).
		OverrideByName("maxmemory", guide(orange)).
		GridPos(at(0, 7, halfWidth, 7)))

	made.WithPanel(lines("Client buffers",
		"Input and output buffers and client structs, by class. They count against maxmemory, so when they grow, keys are evicted. Redis brings its account up to date about once a second. Grey: a new peak since the agent found the server, also between two scrapes. A row below has the distribution of ten samples a second.",
		"bytes",
		query("A", oneServer, "evictscope_client_buffers_bytes{LABELS}", "{{class}}"),
		query("B", oneServer, "evictscope_client_buffers_peak_bytes{LABELS} > evictscope_client_buffers_peak_bytes{LABELS} offset $__interval", "new peak")).
		FillOpacity(30).
		Stacking(stacked()).
		OverrideByName("new peak", guide(grey)).
		GridPos(at(0, 14, halfWidth, 6)))

	made.WithPanel(lines("Commands",
		"Commands a second, from the server's own counter. In the bursts of GitLab's article they fell to 20 %.",
		"ops",
		query("A", oneServer, "rate(evictscope_commands_processed_total{LABELS}[$__rate_interval])", "commands")).
		GridPos(at(0, 20, halfWidth, 6)))
}

// rightColumn is why: what takes the main thread, and what eviction calls do.
func rightColumn(made *dashboard.DashboardBuilder) {
	made.WithPanel(lines("Main thread by activity",
		"Share of the time in which the main thread evicts, expires keys, does anything else, or waits for a CPU. Red line: stalled, the share of the time in which evictions, or expire cycles, took a fifth or more of a main thread with no time to spare.",
		"percentunit",
		query("A", oneServer, `sum(rate(evictscope_stall_seconds_total{LABELS}[$__rate_interval]))`, "stalled"),
		query("B", oneServer, `sum by (activity) (rate(evictscope_main_thread_cpu_seconds_total{LABELS}[$__rate_interval]))`, "{{activity}}"),
		query("C", oneServer, `sum(rate(evictscope_main_thread_waiting_seconds_total{LABELS}[$__rate_interval]))`, "waiting for a CPU")).
		Max(1).
		FillOpacity(40).
		LineWidth(0).
		Stacking(stacked()).
		OverrideByName("stalled", []dashboard.DynamicConfigValue{
			fixedColour(red),
			property("custom.stacking", map[string]any{"mode": "none", "group": "A"}),
			property("custom.lineWidth", 2),
			property("custom.fillOpacity", 0),
		}).
		OverrideByName("eviction", []dashboard.DynamicConfigValue{fixedColour(orange)}).
		OverrideByName("expire", []dashboard.DynamicConfigValue{fixedColour(purple)}).
		OverrideByName("other", []dashboard.DynamicConfigValue{fixedColour(blue)}).
		OverrideByName("waiting for a CPU", []dashboard.DynamicConfigValue{fixedColour(yellow)}).
		GridPos(at(halfWidth, 3, halfWidth, 7)))

	made.WithPanel(buckets("Duration of evicting calls",
		"Evicting calls a second by duration. No client is answered during a call. Redis stops a call at 500 µs by default (maxmemory-eviction-tenacity 10).",
		"s",
		heatmapQuery(oneServer, perObserved(histogram{"evictscope_eviction_call_duration_seconds", `LABELS,kind="evicting"`}.rates()))).
		GridPos(at(halfWidth, 10, halfWidth, 8)))

	made.WithPanel(buckets("Goal of evicting calls (mem_tofree)",
		"Evicting calls a second by the memory that each had to free. In a calm cache a call frees what one command has added. In a burst it frees as much as all waiting replies take.",
		"bytes",
		heatmapQuery(oneServer, perObserved(histogram{"evictscope_mem_tofree_bytes", "LABELS"}.rates()))).
		GridPos(at(halfWidth, 18, halfWidth, 8)))
}
