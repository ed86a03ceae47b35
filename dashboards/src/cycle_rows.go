package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// foldedRows adds the rows below the first screen. Grafana runs their queries when they are unfolded.
func foldedRows(made *dashboard.DashboardBuilder) {
	for i, row := range []*dashboard.RowBuilder{bursts(), evictingCalls(), expiry(), server()} {
		made.WithRow(row.Collapsed(true).GridPos(at(0, screenHeight+uint32(i), fullWidth, 1)))
	}
}

// bursts returns a row with a table, which has one row for each burst.
func bursts() *dashboard.RowBuilder {
	perStep := func(refID, expression string) *prometheus.DataqueryBuilder {
		return tableQuery(refID, oneServer, expression).Interval(scrapeInterval)
	}
	ofKind := func(kind string) string {
		return `sum by (SERVER) (` + inStep(`evictscope_bursts_total{LABELS,kind="`+kind+`"}`) + `)
and on (SERVER) (sum by (SERVER) (` + inStep(`evictscope_bursts_total{LABELS}`) + `) > 0)`
	}
	seconds, bytes, short := property("unit", "s"), property("unit", "bytes"), property("decimals", 0)
	return dashboard.NewRowBuilder("Bursts").WithPanel(rows("Last bursts",
		"One row for each burst, at the time when its reclaim was over. If a step has several bursts, the row has their numbers, and the means or the sums of all. Growth and memory reclaimed are those of bursts of half a second or more, and empty where there was none or it is not known. The agent's log and /api/v1/bursts have each burst by itself.",
		[]column{
			{"Time", "Counted at", []dashboard.DynamicConfigValue{property("custom.width", 180)}},
			{"Value #A", "Self-amplifying", append(coloured(grey, step{1, orange}), short)},
			{"Value #B", "Stalling", append(coloured(grey, step{1, orange}), short)},
			{"Value #C", "Plain", []dashboard.DynamicConfigValue{short}},
			{"Value #D", "Unknown", []dashboard.DynamicConfigValue{short}},
			{"Value #E", "Saturated for", []dashboard.DynamicConfigValue{seconds}},
			{"Value #F", "Reclaim", []dashboard.DynamicConfigValue{seconds}},
			{"Value #G", "Client buffers grew by", []dashboard.DynamicConfigValue{bytes}},
			{"Value #H", "Memory reclaimed", []dashboard.DynamicConfigValue{bytes}},
		},
		serverLabels(),
		perStep("A", ofKind("self_amplifying")),
		perStep("B", ofKind("stalling")),
		perStep("C", ofKind("plain")),
		perStep("D", ofKind("unknown")),
		perStep("E", histogram{"evictscope_burst_duration_seconds", "LABELS"}.mean()),
		perStep("F", histogram{"evictscope_reclaim_duration_seconds", "LABELS"}.mean()),
		perStep("G", inStep("evictscope_burst_client_buffer_growth_bytes_total{LABELS}")+" > 0"),
		perStep("H", inStep("evictscope_burst_reclaimed_bytes_total{LABELS}")+" > 0")).
		WithTransformation(dashboard.DataTransformerConfig{Id: "sortBy", Options: map[string]any{
			"fields": map[string]any{}, "sort": []map[string]any{{"field": "Counted at", "desc": true}},
		}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "limit", Options: map[string]any{"limitField": 100}}).
		SortBy(sortedBy("Counted at")))
}

// evictingCalls returns a row about the calls by number, result and duration.
func evictingCalls() *dashboard.RowBuilder {
	duration := histogram{"evictscope_eviction_call_duration_seconds", `LABELS,kind="evicting"`}
	return dashboard.NewRowBuilder("Eviction calls").
		WithPanel(lines("Eviction calls by kind",
			"Eviction calls a second. evicting: memory was over the limit. noop: it was not; these are counted only in probe mode every-call, so a gap means not counted. running: the call stopped at its time limit (maxmemory-eviction-tenacity). fail: nothing could be evicted, and a write would be refused. Any fail is too many. All rates are per second in which calls are observed, so those of a server in probe mode sampled are right, too.",
			"cps",
			query("A", oneServer, "sum by (kind) (rate(evictscope_eviction_calls_total{LABELS}[$__rate_interval])) / (sum by (kind) (rate(evictscope_observed_seconds_total{LABELS}[$__rate_interval])) > 0)", "{{kind}}"),
			query("B", oneServer, perObserved(`sum by (result) (rate(evictscope_eviction_calls_total{LABELS,kind="evicting",result=~"running|fail"}[$__rate_interval]))`), "evicting, {{result}}")).
			OverrideByName("evicting, fail", []dashboard.DynamicConfigValue{fixedColour(red)}).
			Span(8)).
		WithPanel(lines("Duration of evicting calls, p50 and p99",
			"Quantiles of the histogram. Threshold: 500 µs, where Redis stops a call by default.",
			"s",
			query("A", oneServer, duration.quantile("0.5"), "p50"),
			query("B", oneServer, duration.quantile("0.99"), "p99")).
			Thresholds(thresholds(green, step{500e-6, orange})).
			ThresholdsStyle(dashed()).
			AxisSoftMax(600e-6).
			Span(8)).
		WithPanel(lines("Longest evicting call of the last 5 minutes",
			"One that is under way counts as it grows. Threshold: 100 ms.",
			"s",
			query("A", oneServer, "evictscope_eviction_call_longest_seconds{LABELS}", "longest")).
			Thresholds(thresholds(green, step{100e-3, red})).
			ThresholdsStyle(dashed()).
			Span(8)).
		WithPanel(buckets("Goal of evicting calls (mem_tofree)",
			"Evicting calls a second by the memory that each had to free. In a calm cache a call frees what one command has added. In a burst it frees as much as all waiting replies take.",
			"bytes",
			heatmapQuery(oneServer, perObserved(histogram{"evictscope_mem_tofree_bytes", "LABELS"}.rates()))).
			Height(7).Span(8)).
		WithPanel(lines("Keys evicted and expired",
			"Keys a second, from the server's own counters.",
			"cps",
			query("A", oneServer, "rate(evictscope_evicted_keys_total{LABELS}[$__rate_interval])", "evicted"),
			query("B", oneServer, "rate(evictscope_expired_keys_total{LABELS}[$__rate_interval])", "expired")).
			Span(8)).
		WithPanel(lines("Time in each phase",
			"Share of the time in each phase of the cycle.",
			"percentunit",
			query("A", oneServer, "rate(evictscope_phase_seconds_total{LABELS}[$__rate_interval])", "{{phase}}")).
			Max(1).
			FillOpacity(40).
			LineWidth(0).
			Stacking(stacked()).
			OverrideByName("not_saturated", []dashboard.DynamicConfigValue{fixedColour(green)}).
			OverrideByName("saturated", []dashboard.DynamicConfigValue{fixedColour(purple)}).
			OverrideByName("reclaim", []dashboard.DynamicConfigValue{fixedColour(blue)}).
			Span(8))
}

// server returns a row about what the server is, what is not known about it, and its client buffers.
func server() *dashboard.RowBuilder {
	nothing := []dashboard.DynamicConfigValue(nil)
	return dashboard.NewRowBuilder("Server and client buffers").
		WithPanel(rows("Server",
			"What runs: the process, the name that it was started with and the file that it runs, its version, what it evicts (maxmemory-policy), and its pod, where kube-state-metrics knows it.",
			[]column{
				{"pid", "Pid", nothing},
				{"exe", "Started as", nothing},
				{"file", "File", nothing},
				{"product", "Product", nothing},
				{"version", "Version", nothing},
				{"policy", "maxmemory-policy", nothing},
				{"namespace", "Namespace", nothing},
				{"pod", "Pod", nothing},
			},
			append(serverLabels(), "Time", "Value #A", "Value #B", "Value #C"),
			tableQuery("A", oneServer, "max by (SERVER, pid, exe, file, product, version) (evictscope_server_info{LABELS})").Instant(),
			tableQuery("B", oneServer, "max by (SERVER, policy) (evictscope_maxmemory_policy_info{LABELS})").Instant(),
			tableQuery("C", oneServer, podOfServer(oneServer)).Instant()).
			Height(4).Span(halfWidth)).
		WithPanel(rows("Not found",
			"What was not found in this server's executable, and so is not shown. Empty is good. `evictscope inspect PID` says why.",
			[]column{{"item", "Item", nothing}},
			append(serverLabels(), "Time", "Value", "Value #A"),
			tableQuery("A", oneServer, "max by (SERVER, item) (evictscope_not_found{LABELS})").Instant()).
			Height(4).Span(halfWidth)).
		WithPanel(buckets("Client buffers, ten samples a second",
			"Samples a second by the size of all client buffers. It shows what is too short for a scrape.",
			"bytes",
			heatmapQuery(oneServer, histogram{"evictscope_client_buffers_sample_bytes", "LABELS"}.rates())).
			Span(halfWidth)).
		WithPanel(lines("Memory that does not count, and the peak of client buffers",
			"not counted: replication and AOF buffers, which do not count against maxmemory, at the last evicting call. Peak: the most that client buffers held since the agent found the server.",
			"bytes",
			query("A", oneServer, "evictscope_not_counted_memory_bytes{LABELS}", "not counted"),
			query("B", oneServer, "evictscope_client_buffers_peak_bytes{LABELS}", "peak of client buffers")).
			Height(8).Span(halfWidth)).
		WithPanel(lines("Where the memory is",
			"used_memory by part, as the server accounts it. rest: keys, values, and what it does not account for.",
			"bytes",
			query("A", oneServer, "evictscope_memory_part_bytes{LABELS}", "{{part}}")).
			FillOpacity(30).
			Stacking(stacked()).
			Height(8).Span(halfWidth)).
		WithPanel(lines("At the limit",
			"What the main thread does now, and what evictions would add where memory is at maxmemory: more than 100 % together would stall clients. By the growth of the last hour, or since evictions ended, and by what evictions took for each byte when the server last evicted, or, where it has not yet, in the lab. limit in: when memory gets there. Nothing while it evicts, or does not grow.",
			"percentunit",
			query("A", oneServer, `sum(rate(evictscope_main_thread_cpu_seconds_total{LABELS,activity!~"eviction|spin|unknown"}[$__rate_interval]))`, "main thread, but for evictions"),
			query("B", oneServer, "evictscope_evictions_would_add_ratio{LABELS}", "evictions would add"),
			query("C", oneServer, `evictscope_maxmemory_reached_seconds{LABELS,estimate="likely"}`, "limit in")).
			OverrideByName("limit in", []dashboard.DynamicConfigValue{property("unit", "s"), property("custom.axisPlacement", "right")}).
			Height(8).Span(halfWidth))
}
