package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// expiry returns a row about what the expire cycle does, and what it leaves behind. Its probes are on all the time, so
// its rates need no division by observed time.
func expiry() *dashboard.RowBuilder {
	duration := histogram{"evictscope_expire_cycle_duration_seconds", "LABELS"}
	return dashboard.NewRowBuilder("Expiry").
		WithPanel(lines("Main thread in expire cycles",
			"Share of the main thread's time. Red line: the share of the time in which they stalled clients. Redis gives slow cycles 25 % of the time at most with active-expire-effort 1, and 43 % with 10.",
			"percentunit",
			query("A", oneServer, `sum(rate(evictscope_main_thread_cpu_seconds_total{LABELS,activity="expire"}[$__rate_interval]))`, "expire cycles"),
			query("B", oneServer, `sum(rate(evictscope_stall_seconds_total{LABELS,cause="expire"}[$__rate_interval]))`, "stalled by them")).
			FillOpacity(40).
			OverrideByName("expire cycles", []dashboard.DynamicConfigValue{fixedColour(purple)}).
			OverrideByName("stalled by them", []dashboard.DynamicConfigValue{
				fixedColour(red),
				property("custom.lineWidth", 2),
				property("custom.fillOpacity", 0),
			}).
			Span(8)).
		WithPanel(lines("Duration of expire cycles, mean and p99",
			"No client is answered during a cycle. The mean is exact; the p99 lies between two bounds of the histogram (0.1, 1, 2, 5, 25, 50 and 500 ms). slow: from the server's cron, hz times a second. fast: before the event loop sleeps, where a cycle before it was not enough. At effort 1 and hz 10 the limit of a slow one is 25 ms, and that of a fast one 1 ms. Redis looks at the clock after every 16 samples of 20 keys, so large keys make a cycle longer.",
			"s",
			query("A", oneServer, duration.meanBy("type"), "{{type}} mean"),
			query("B", oneServer, duration.quantileBy("type", "0.99"), "{{type}} p99")).
			Span(8)).
		WithPanel(lines("Keys sampled and expired",
			"Keys a second that expire cycles looked at, and those of them that had expired and were removed. all expired: by the server's own counter, which has the keys that a command found expired, too.",
			"cps",
			query("A", oneServer, "sum(rate(evictscope_expire_cycle_keys_sampled_total{LABELS}[$__rate_interval]))", "sampled"),
			query("B", oneServer, "sum(rate(evictscope_expire_cycle_keys_expired_total{LABELS}[$__rate_interval]))", "expired"),
			query("C", oneServer, "sum(rate(evictscope_expired_keys_total{LABELS}[$__rate_interval]))", "all expired")).
			Span(8)).
		WithPanel(lines("Expired keys that are held",
			"Share of the keys with a TTL that have expired and are still held. sampled: of random keys, from outside, every 15 s. stale: the server's own estimate, a moving average over the keys that it samples: up to twice the true share where expiry keeps up, and far below it while a client scans all the time. Threshold: that of the alert EvictscopeExpiryFallsBehind for the sample alone. Redis itself is content with 10 % at effort 1.",
			"percentunit",
			query("A", oneServer, "evictscope_expired_held_ratio{LABELS}", "sampled"),
			query("B", oneServer, "evictscope_expire_stale_ratio{LABELS}", "stale")).
			Thresholds(thresholds(green, step{thresholdOf("HeldRatio"), orange})).
			ThresholdsStyle(dashed()).
			AxisSoftMax(0.3).
			Span(8)).
		WithPanel(lines("Expire cycles, and those at their time limit",
			"Cycles a second that had something to do, by type. at the time limit: Redis stopped the cycle although there was more to expire. Again and again, while many expired keys are held: expiry falls behind. Many of them without this: Redis stops by itself, because a sample of 20 keys had few expired ones.",
			"cps",
			query("A", oneServer, duration.countBy("type"), "{{type}}"),
			query("B", oneServer, "rate(evictscope_expire_cycle_time_limit_hits_total{LABELS}[$__rate_interval])", "at the time limit")).
			OverrideByName("at the time limit", []dashboard.DynamicConfigValue{fixedColour(orange)}).
			Span(8)).
		WithPanel(lines("Memory held by expired keys, estimated",
			"That share, times the memory that is not client buffers. Where keys have no TTL, multiply by the share of those that have one (expires by keys in INFO keyspace).",
			"bytes",
			query("A", oneServer, expiredMemory, "estimate")).
			OverrideByName("estimate", []dashboard.DynamicConfigValue{fixedColour(blue)}).
			Span(8))
}
