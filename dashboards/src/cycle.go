package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// The first screen, of 1920 × 1080 pixels, has room for 26 rows of the grid: numbers, then two columns whose
// panels share a time axis.
const (
	numbersHeight = 3
	screenHeight  = 26
)

// evictionCycle returns the dashboard about one server.
func evictionCycle() *dashboard.DashboardBuilder {
	made := newDashboard("evictscope / Eviction cycle", cycleUID,
		"One Redis server: how long its clients wait and why, and its cycle of eviction bursts (not_saturated, saturated, reclaim).").
		Time("now-1h", "now").
		WithVariable(instances()).
		WithVariable(labelVariable("server", "Server",
			"label_values(evictscope_server_info{"+oneInstance.matchers()+"}, server)")).
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

// numbersOfServer shows in one row how much it hurt, and what is going on.
func numbersOfServer(made *dashboard.DashboardBuilder) {
	made.WithPanel(number("How long clients waited in the time range",
		"From when a request came until its answer left. mean: of all commands. over 0.1 s, over 1 s: how many times a request waited for longer than that. longest: of all waits. Thresholds: a request over 0.1 s is orange, one over 1 s red. Empty where the kernel cannot look at sockets (before Linux 6.1).",
		"none", thresholds(grey),
		query("A", oneServer, "sum(increase(evictscope_client_wait_seconds_total{LABELS}[$__range])) / (sum(increase(evictscope_commands_processed_total{LABELS}[$__range])) > 0)", "mean"),
		query("B", oneServer, waited("0.1"), "over 0.1 s"),
		query("C", oneServer, waited("1"), "over 1 s"),
		query("D", oneServer, "max_over_time(evictscope_client_wait_longest_seconds{LABELS}[$__range])", "longest")).
		OverrideByName("mean", []dashboard.DynamicConfigValue{property("unit", "s")}).
		OverrideByName("over 0.1 s", []dashboard.DynamicConfigValue{steps(green, step{1, orange}), property("decimals", 0)}).
		OverrideByName("over 1 s", []dashboard.DynamicConfigValue{steps(green, step{1, red}), property("decimals", 0)}).
		OverrideByName("longest", []dashboard.DynamicConfigValue{property("unit", "s"), steps(green, step{0.1, orange}, step{1, red})}).
		GridPos(at(0, 0, 8, numbersHeight)))
	made.WithPanel(number("Stalled in the time range",
		"Time in which some request had waited for 0.1 s or longer (--stall-threshold). Counted as it happens. Stalled, by cause shows what took the main thread's time meanwhile. Threshold: a second.",
		"s", thresholds(green, step{1, red}),
		query("A", oneServer, `sum(increase(evictscope_stall_seconds_total{LABELS}[$__range]))`, "stalled")).
		GridPos(at(8, 0, 3, numbersHeight)))
	made.WithPanel(number("Phase",
		"What the server is doing now. Red: stalled for a second or more, or evictions failed, in the last minute. Else the phase of the cycle: not_saturated (green), saturated (purple), reclaim (blue). A cache at its limit is in saturated all the time, which is no problem by itself.",
		"none", thresholds(green),
		query("A", oneServer, phaseNow, "phase")).
		GridPos(at(11, 0, 3, numbersHeight)).
		Mappings(mapping(append(phases, impacts...))))
	made.WithPanel(number("Memory of limit",
		"Memory that counts against maxmemory (used memory less replication and AOF buffers), as a share of it. No threshold: a cache is at 100 %, and a store should not be. not applied: the server is a replica that ignores its limit.",
		"percentunit", thresholds(blue),
		query("A", oneServer, saturation+`
or (evictscope_maxmemory_bytes{LABELS} == 0) - 1
or ignoring (role, applies) -2 * evictscope_server_role_info{LABELS,applies="no"}`, "memory")).
		Mappings(mapping([]state{{"-1", "no limit", grey}, {"-2", "not applied", grey}})).
		GridPos(at(14, 0, 2, numbersHeight)))
	made.WithPanel(number("Bursts in the time range, by kind, and the last one",
		"Finished bursts. self-amplifying: they stalled clients, evictions took the CPU time that the main thread lacked, more and more clients waited, and their buffers grew, which needs more evictions. stalling: their evictions stalled clients. plain: they stalled nobody. unknown: what would decide was not known. last: when the last burst began, or that it is under way.",
		"none", thresholds(grey),
		query("A", oneServer, finished("self_amplifying"), "self-amplifying"),
		query("B", oneServer, finished("stalling"), "stalling"),
		query("C", oneServer, finished("plain"), "plain"),
		query("D", oneServer, finished("unknown"), "unknown"),
		query("E", oneServer, "0 * (evictscope_burst_open{LABELS} == 1) or 1000 * evictscope_last_burst_start_timestamp_seconds{LABELS}", "last")).
		OverrideByName("self-amplifying", []dashboard.DynamicConfigValue{steps(grey, step{1, orange})}).
		OverrideByName("stalling", []dashboard.DynamicConfigValue{steps(grey, step{1, orange})}).
		OverrideByName("last", []dashboard.DynamicConfigValue{
			property("unit", "dateTimeFromNow"),
			property("mappings", mapping([]state{{"0", "under way", orange}})),
		}).
		GridPos(at(16, 0, 8, numbersHeight)))
}

// waited returns how many times a request waited for longer than this many seconds, in the time range.
func waited(over string) string {
	return `round(sum by (SERVER) (increase(evictscope_requests_waited_total{LABELS,over="` + over + `"}[$__range])))`
}

// finished returns the number of bursts of a kind in the time range.
func finished(kind string) string {
	return `round(sum by (SERVER) (increase(evictscope_bursts_total{LABELS,kind=~"` + kind + `"}[$__range])))`
}

// leftColumn shows what clients and the server do.
func leftColumn(made *dashboard.DashboardBuilder) {
	made.WithPanel(lines("Mean wait of a command",
		"How long a request waited for its answer, on average: in how many connections requests wait, by commands a second (Little's law).",
		"s",
		query("A", oneServer, meanWait, "mean wait")).
		GridPos(at(0, 3, halfWidth, 5)))

	made.WithPanel(lines("Requests that waited",
		"Times a second that a request waited for longer than 0.1 s, and than 1 s.",
		"cps",
		query("A", oneServer, `sum by (over) (rate(evictscope_requests_waited_total{LABELS}[$__rate_interval]))`, "over {{over}} s")).
		OverrideByName("over 0.1 s", []dashboard.DynamicConfigValue{fixedColour(orange)}).
		OverrideByName("over 1 s", []dashboard.DynamicConfigValue{fixedColour(red)}).
		GridPos(at(0, 8, halfWidth, 4)))

	made.WithPanel(timeline("Phase of the cycle, and its impact",
		"Above: not_saturated (green), saturated (purple), reclaim (blue). Each step shows the last phase in it that is not green, so no burst is too short to be seen. Below: red where clients were stalled, by whatever it was, dark red where evictions failed.",
		append(append([]state{{"-1", "no impact", noColour}}, phases...), impacts...),
		query("A", oneServer, phaseInStep, "phase"),
		query("B", oneServer, impactInStep, "impact")).
		GridPos(at(0, 12, halfWidth, 4)))

	made.WithPanel(lines("Client buffers",
		"Input and output buffers and client structs, by class. They count against maxmemory, so when they grow, keys are evicted. Redis brings its account up to date about once a second. Grey: a new peak since the agent found the server, also between two scrapes. A row below has the distribution of ten samples a second.",
		"bytes",
		query("A", oneServer, "evictscope_client_buffers_bytes{LABELS}", "{{class}}"),
		query("B", oneServer, "evictscope_client_buffers_peak_bytes{LABELS} > evictscope_client_buffers_peak_bytes{LABELS} offset $__interval", "new peak")).
		FillOpacity(30).
		Stacking(stacked()).
		OverrideByName("new peak", guide(grey)).
		GridPos(at(0, 16, halfWidth, 5)))

	made.WithPanel(lines("Commands",
		"Commands a second, from the server's own counter. In the bursts of GitLab's article they fell to 20 %.",
		"ops",
		query("A", oneServer, "rate(evictscope_commands_processed_total{LABELS}[$__rate_interval])", "commands")).
		GridPos(at(0, 21, halfWidth, 5)))
}

// rightColumn shows why: what takes the main thread, and what eviction calls do.
func rightColumn(made *dashboard.DashboardBuilder) {
	byCause := lines("Stalled, by cause",
		"Share of the time in which some request had waited for 0.1 s or longer, by what took most of the main thread's time since it came. cpu: it wanted a CPU and had none. blocked: it slept elsewhere than in its event loop (a disk, a stopped process).",
		"percentunit",
		query("A", oneServer, `sum by (cause) (rate(evictscope_stall_seconds_total{LABELS}[$__rate_interval]))`, "{{cause}}")).
		Max(1).
		FillOpacity(40).
		LineWidth(0).
		Stacking(stacked())
	made.WithPanel(inColours(byCause, causes).GridPos(at(halfWidth, 3, halfWidth, 5)))

	byActivity := lines("Main thread by activity",
		"Share of the time in which the main thread evicts, expires keys, does anything else, or waits for a CPU.",
		"percentunit",
		query("A", oneServer, `sum by (activity) (rate(evictscope_main_thread_cpu_seconds_total{LABELS}[$__rate_interval]))`, "{{activity}}"),
		query("B", oneServer, `sum(rate(evictscope_main_thread_waiting_seconds_total{LABELS}[$__rate_interval]))`, "waiting for a CPU")).
		Max(1).
		FillOpacity(40).
		LineWidth(0).
		Stacking(stacked())
	made.WithPanel(inColours(byActivity, activities).GridPos(at(halfWidth, 8, halfWidth, 6)))

	made.WithPanel(curves("Counted memory and its limit",
		"Memory that counts against maxmemory: used memory, less replication and AOF buffers. A sawtooth that touches the dashed line is the cycle. The axis does not begin at zero.",
		"bytes",
		query("A", oneServer, countedMemory, "counted memory"),
		query("B", oneServer, "evictscope_maxmemory_bytes{LABELS} > 0", "maxmemory")).
		FillOpacity(0).
		OverrideByName("counted memory", []dashboard.DynamicConfigValue{fixedColour(blue)}).
		OverrideByName("maxmemory", guide(orange)).
		GridPos(at(halfWidth, 14, halfWidth, 6)))

	made.WithPanel(buckets("Duration of evicting calls",
		"Evicting calls a second by duration. No client is answered during a call. Redis stops a call at 500 µs by default (maxmemory-eviction-tenacity 10).",
		"s",
		heatmapQuery(oneServer, perObserved(histogram{"evictscope_eviction_call_duration_seconds", `LABELS,kind="evicting"`}.rates()))).
		GridPos(at(halfWidth, 20, halfWidth, 6)))
}
