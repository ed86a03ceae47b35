package main

import "strconv"

// threshold is a number that an alert compares with, and why it is what it is.
type threshold struct {
	Name, Value, Reason string
}

// thresholdsOfAlerts are all of them, in the order of the alerts. "The article" is GitLab's, 2022: bursts of 6 to
// 8 s, every 7 to 15 min, throughput down to 20 %, reclaim of 30 to 60 s. "The lab" is `cargo xtask lab`.
var thresholdsOfAlerts = []threshold{
	{"StalledShare", "0.5", "share of 2 m, and of 1 m, in which clients were stalled by evictions or expire cycles. A calm cache has 0."},
	{"StalledFor", "30s", "for how long. With both shares, such a server pages within 3 minutes, and a bulk load that stalls for a minute does not."},
	{"StallBudget", "20", "seconds stalled in an hour. The article's cycle has 28 to 56 s of bursts an hour; a single burst of it has 6 to 8 s."},
	{"StallSlot", "1", "seconds stalled in 5 m that count as a stall which came back. Shorter than the lab's bursts of 2 to 3 s, and longer than one slow call, which has an alert of its own."},
	{"StallSlots", "3", "5-minute spans of the last hour with such a stall. A single bulk load of up to 5 minutes lies in two at most; the article's slowest cycle makes four."},
	{"CostlyShare", "0.2", "share of the main thread's time in evictions that is worth a ticket. From this share on, a burst's evictions are what a main thread lacks (docs/METRICS.md). 50 closed-loop clients at the limit: half of the thread, some 25 ms a request."},
	{"BusyShare", "0.9", "share of the time in which the main thread has work, on a CPU or waiting for one: from there on it has no time to spare."},
	{"CostlyFor", "10m", "for how long. Leaves out a bulk load that ends soon."},
	{"NoCpuShare", "0.25", "share of the time in which the main thread is ready to run and has no CPU. A calm cache that shared two cores with builds and two endless loops waited for 0.33 of it, and its slowest PING took 168 ms."},
	{"NoCpuFor", "10m", "for how long. Leaves out a build, or a backup that ends soon."},
	{"UnansweredSeconds", "60", "seconds for which nobody has been answered while requests wait, whatever the cause. To its clients, a minute of it is an outage. A server that loads its file answers, that it does."},
	{"FailingFor", "1m", "for how long commands are refused. This allows for a moment in which lazy freeing is behind."},
	{"NothingFor", "10m", "for how long evicting calls fail, where nothing is known to have been refused. No failing call is normal."},
	{"Recurring", "1.5", "bursts in 30 m that make a cycle: two. increase() extrapolates, to a little more than 1 for one burst. The article's slowest cycle comes back after 15 m and a minute of reclaim."},
	{"SlowCall", "0.1", "seconds of one eviction call. Redis stops a call after 0.0005 s by default (maxmemory-eviction-tenacity 10), but never within one key. 200 times that is a stall by definition."},
	{"SwellingRatio", "3", "times the median of an hour. The buckets are powers of 2: constant client buffers on a bound can look like 2.7 times their median."},
	{"SwollenShare", "0.15", "of maxmemory, in client buffers but for those of replicas, on average of 2 minutes. In the lab's cycle they went from 14 to 30 % of it, for some seconds."},
	{"SwellingBytes", "16 * 1024 * 1024", "bytes of client buffers. 200 busy clients hold 7 MiB in the lab's `steady`; below 16 MiB a few large values can give any ratio."},
	{"NearShare", "0.8", "of maxmemory. Below that, a straight line through an hour says too little."},
	{"NearSeconds", "3600", "seconds until memory reaches the limit: one hour is time to act."},
	{"NearFor", "10m", "for how long memory grows like that. Leaves out a bulk load that ends soon, and the first minutes of a server."},
	{"WouldStallShare", "1", "of the main thread's time that its work and evictions would take together: more than there is."},
	{"WouldStallSeconds", "86400", "seconds until memory reaches the limit: a working day to act."},
	{"HeldRatio", "0.5", "of the keys with a TTL have expired and are still held, by the sample (mean of 5 m), whatever expire cycles do. With 5,000 keys a second that live for 30 s it was 0.2 where expiry kept up, in Redis 7.0 and 8.2 and Valkey 9.1, and 0.68 beside a client that scans all the time."},
	{"StaleRatio", "0.25", "of them where expire cycles end at their time limit, by the sample, or else by the server's own estimate. Twitter found a quarter of a cluster's memory held like that. Redis is content with 0.1 at active-expire-effort 1; where we saw its cycles end at their time limit again and again, it was 0.34 to 0.8. The estimate alone says little: 0.41 where expiry kept up with keys of 5 s."},
	{"LimitHits", "1", "expire cycles a second that end at their time limit (mean of 5 m), of the 10 slow ones that the default hz makes, and the fast ones. Where sets of 330 members with a TTL of 3 s came faster than they could be freed, it was 16 to 62; in the lab's `expire`, 3 to 18; where expiry kept up, less than 0.5."},
	{"BehindFor", "10m", "for how long that holds. Leaves out many keys that expire at the same time: 5 million small ones took 8 s, which the means of 5 m show for 5 m."},
	{"UnwatchedFor", "10m", "for how long a server is not watched. The agent finds a server within seconds; this allows for a roll-out."},
	{"MissingFor", "5m", "for how long something was not found. Leaves out a server that is being replaced."},
	{"OverBudgetFor", "15m", "for how long probes cost more than the budget. In probe mode auto they never do; with another mode, a burst may cost more while it lasts."},
	{"AgentFor", "5m", "for how long an agent is away. Longer than a restart."},
	{"StaleFor", "2m", "for how long the agent's loop does not turn. It turns several times a second, and an agent whose loop does not turn for 30 s ends itself."},
}

// thresholdOf returns the value of a threshold, for a panel that shows it.
func thresholdOf(name string) float64 {
	for _, threshold := range thresholdsOfAlerts {
		if threshold.Name == name {
			value, err := strconv.ParseFloat(threshold.Value, 64)
			if err != nil {
				// The thresholds are constants of this program.
				panic(err)
			}
			return value
		}
	}
	panic("no threshold " + name)
}
