package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// phases in the order of the cycle.
var phases = []state{
	{"0", "not_saturated", green},
	{"1", "reclaim", blue},
	{"2", "saturated", red},
}

// phaseQuery says for each step which phase was touched in it, the worst one if several: from the time
// that was counted for it, so that no burst is too short for the step.
const phaseQuery = `max by (job, instance, server) (
  2 * (evictscope_phase_seconds_total{LABELS,phase="saturated"} - evictscope_phase_seconds_total{LABELS,phase="saturated"} offset $__interval > bool 0)
  or
  (evictscope_phase_seconds_total{LABELS,phase="reclaim"} - evictscope_phase_seconds_total{LABELS,phase="reclaim"} offset $__interval > bool 0)
  or
  0 * evictscope_phase_seconds_total{LABELS,phase="not_saturated"}
)`

// perBurst is what one burst added to a counter or to the sum of a histogram, at the step in which the
// burst was counted: the mean, where several were.
func perBurst(refID, sum, count string) *prometheus.DataqueryBuilder {
	return tableQuery(refID, oneServer, `(
  (`+sum+`{LABELS} - `+sum+`{LABELS} offset $__interval)
  / (`+count+`{LABELS} - `+count+`{LABELS} offset $__interval > 0)
)`).Interval(scrapeInterval)
}

func histogramPerBurst(refID, name string) *prometheus.DataqueryBuilder {
	return perBurst(refID, name+"_sum", name+"_count")
}

// finished is how many bursts of a kind were counted at each step at which there was one of any kind.
func finished(refID, kind string) *prometheus.DataqueryBuilder {
	return tableQuery(refID, oneServer, `sum without (kind) (
  evictscope_bursts_total{LABELS,kind="`+kind+`"} - evictscope_bursts_total{LABELS,kind="`+kind+`"} offset $__interval
)
and on (job, instance, server)
(evictscope_burst_duration_seconds_count{LABELS} - evictscope_burst_duration_seconds_count{LABELS} offset $__interval > 0)`).
		Interval(scrapeInterval)
}

// evictionCycle is about one server: everything on one time axis, the phases above it.
func evictionCycle() *dashboard.DashboardBuilder {
	made := newDashboard("evictscope / Eviction cycle", cycleUID,
		"One Redis server in the cycle of eviction bursts: not_saturated, saturated, reclaim. All panels share the time axis.").
		Time("now-1h", "now").
		WithVariable(labelVariable("instance", "Instance", instanceQuery)).
		WithVariable(labelVariable("server", "Server",
			`label_values(evictscope_server_info{job=~"$job",instance=~"$instance"}, server)`)).
		Annotation(dashboard.NewAnnotationQueryBuilder().
			Name("Bursts").
			Datasource(dataSource()).
			Enable(true).
			IconColor(red).
			Target(query("Anno", oneServer, "evictscope_last_burst_start_timestamp_seconds{LABELS} * 1000", "").
				Interval(scrapeInterval)).
			UseValueForTime(true).
			TitleFormat("Burst begins").
			TextFormat("Redis server {{server}} of {{instance}}: first evicting call").
			TagKeys("server"))

	made.WithPanel(timeline("Phase",
		"Phase of the eviction cycle. A step shows the worst phase that was touched in it (saturated before reclaim before not_saturated), from the time counted for each, so that no burst is too short to be seen. Colours: green not_saturated, blue reclaim, red saturated.",
		phases,
		query("A", oneServer, phaseQuery, "{{server}}")))

	made.WithPanel(lines("Used memory against maxmemory",
		"Memory tracked by the allocator, and the limit. Red dashed line: maxmemory, at which evictions begin.",
		"bytes",
		query("A", oneServer, "evictscope_used_memory_bytes{LABELS}", "used memory"),
		query("B", oneServer, "evictscope_maxmemory_bytes{LABELS} > 0", "maxmemory")).
		OverrideByName("maxmemory", []dashboard.DynamicConfigValue{
			fixedColour(red),
			property("custom.lineStyle", map[string]any{"fill": "dash", "dash": []int{10, 10}}),
			property("custom.fillOpacity", 0),
		}))

	made.WithPanel(lines("Client buffers by class",
		"Input and output buffers and client structs, which count against maxmemory: where they grow, keys have to go. Redis brings its account up to date about once a second. Dashed: the highest since the agent found the server. No threshold: what is much depends on the clients; the alert compares with the median of an hour.",
		"bytes",
		query("A", oneServer, "evictscope_client_buffers_bytes{LABELS}", "{{class}}"),
		query("B", oneServer, "evictscope_client_buffers_peak_bytes{LABELS}", "peak")).
		FillOpacity(30).
		Stacking(stacked()).
		OverrideByName("peak", []dashboard.DynamicConfigValue{
			fixedColour(grey),
			property("custom.stacking", map[string]any{"mode": "none"}),
			property("custom.lineStyle", map[string]any{"fill": "dash", "dash": []int{10, 10}}),
			property("custom.fillOpacity", 0),
		}))

	made.WithPanel(lines("Commands",
		"Commands a second, the server's own counter. In the article's bursts it falls to 20 % of what it was. Dashed: the mean of the hour before.",
		"ops",
		query("A", oneServer, "rate(evictscope_commands_processed_total{LABELS}[$__rate_interval])", "commands"),
		query("B", oneServer, "avg_over_time(server:evictscope_commands_processed:rate1m{LABELS}[1h])", "mean of an hour")).
		OverrideByName("mean of an hour", []dashboard.DynamicConfigValue{
			fixedColour(grey),
			property("custom.lineStyle", map[string]any{"fill": "dash", "dash": []int{10, 10}}),
			property("custom.fillOpacity", 0),
		}))

	made.WithPanel(lines("Eviction calls by kind",
		"Eviction calls a second. evicting: memory was over the limit. noop: it was not; counted in probe mode every-call only, so a gap means not counted. running: stopped at the time limit (maxmemory-eviction-tenacity). fail: nothing could be evicted, writes are refused; any is too many.",
		"cps",
		query("A", oneServer, "sum by (kind) (rate(evictscope_eviction_calls_total{LABELS}[$__rate_interval]))", "{{kind}}"),
		query("B", oneServer, `sum by (result) (rate(evictscope_eviction_calls_total{LABELS,kind="evicting",result=~"running|fail"}[$__rate_interval]))`, "evicting, {{result}}")).
		OverrideByName("evicting, fail", []dashboard.DynamicConfigValue{fixedColour(red)}))

	made.WithPanel(buckets("Latency of evicting calls",
		"Evicting calls a second by how long they took. While one runs, no client is answered. Redis stops a call at 500 µs by default (maxmemory-eviction-tenacity 10). The bounds are those in which the kernel counts.",
		"s",
		heatmapQuery(oneServer, `sum by (le) (rate(evictscope_eviction_call_duration_seconds_bucket{LABELS,kind="evicting"}[$__rate_interval]))`)))

	made.WithPanel(lines("Latency of evicting calls, p50 and p99",
		"From the same histogram. Threshold: 500 µs, where Redis stops a call by default.",
		"s",
		query("A", oneServer, `histogram_quantile(0.5, sum by (le) (rate(evictscope_eviction_call_duration_seconds_bucket{LABELS,kind="evicting"}[$__rate_interval]))) >= 0`, "p50"),
		query("B", oneServer, `histogram_quantile(0.99, sum by (le) (rate(evictscope_eviction_call_duration_seconds_bucket{LABELS,kind="evicting"}[$__rate_interval]))) >= 0`, "p99")).
		Thresholds(thresholds(green, step{500e-6, orange})).
		ThresholdsStyle(dashed()).
		AxisSoftMax(600e-6))

	made.WithPanel(buckets("Eviction goal (mem_tofree)",
		"Evicting calls a second by how much each had to free. In a calm cache a call frees what one command added; in a burst, what all waiting replies hold.",
		"bytes",
		heatmapQuery(oneServer, "sum by (le) (rate(evictscope_mem_tofree_bytes_bucket{LABELS}[$__rate_interval]))")))

	made.WithPanel(lines("Main thread CPU by activity",
		"Share of one CPU that the main thread uses, in evicting calls and elsewhere. Threshold: 90 %, from which it counts as saturated.",
		"percentunit",
		query("A", oneServer, "sum by (activity) (rate(evictscope_main_thread_cpu_seconds_total{LABELS}[$__rate_interval]))", "{{activity}}")).
		Max(1).
		FillOpacity(30).
		Stacking(stacked()).
		Thresholds(thresholds(green, step{0.9, orange})).
		ThresholdsStyle(dashed()).
		OverrideByName("eviction", []dashboard.DynamicConfigValue{fixedColour(red)}).
		OverrideByName("other", []dashboard.DynamicConfigValue{fixedColour(blue)}))

	seconds, bytes, short := property("unit", "s"), property("unit", "bytes"), property("decimals", 0)
	made.WithPanel(rows("Last bursts",
		"What each burst did, at the time when its reclaim was over. Where a step holds several bursts, their number and their mean. From the log and from /api/v1/bursts of the agent, each burst by itself. Thresholds: throughput below 90 % (orange) and 50 % (red) of what it was; self-amplifying ones from 1 (red).",
		[]column{
			{"Time", "Counted at", []dashboard.DynamicConfigValue{property("custom.width", 180)}},
			{"Value #A", "Self-amplifying", append(coloured(grey, step{1, red}), short)},
			{"Value #B", "Plain", []dashboard.DynamicConfigValue{short}},
			{"Value #C", "Saturated for", []dashboard.DynamicConfigValue{seconds}},
			{"Value #D", "Reclaim", []dashboard.DynamicConfigValue{seconds}},
			{"Value #E", "Throughput", append(coloured(red, step{0.5, orange}, step{0.9, grey}), property("unit", "percentunit"))},
			{"Value #F", "Client buffers grew by", []dashboard.DynamicConfigValue{bytes}},
			{"Value #G", "Memory reclaimed", []dashboard.DynamicConfigValue{bytes}},
		},
		[]string{"job", "instance", "server"},
		finished("A", "self_amplifying"),
		finished("B", "plain"),
		histogramPerBurst("C", "evictscope_burst_duration_seconds"),
		histogramPerBurst("D", "evictscope_reclaim_duration_seconds"),
		histogramPerBurst("E", "evictscope_burst_throughput_ratio"),
		histogramPerBurst("F", "evictscope_burst_client_buffer_growth_bytes"),
		histogramPerBurst("G", "evictscope_burst_reclaimed_bytes")).
		WithTransformation(dashboard.DataTransformerConfig{Id: "sortBy", Options: map[string]any{
			"fields": map[string]any{}, "sort": []map[string]any{{"field": "Counted at", "desc": true}},
		}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "limit", Options: map[string]any{"limitField": 100}}).
		SortBy(sortedBy("Counted at")).
		CellHeight(common.TableCellHeightSm))
	return made
}
