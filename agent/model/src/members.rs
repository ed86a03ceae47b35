//! The list of what evictscope reads from a server's memory: each member of `server` once, and the globals
//! beside it: the allocator's counter, and where the eviction pool is.
//!
//! A member's line determines how it is found, read and exported, the lines of `inspect`, what an operator is told is
//! lost if it is not found, and the tests against `INFO` and docs/METRICS.md. Its offsets by version are in
//! `server-layouts.json`. What is not a whole number, or has labels, becomes a metric in evictscope-web's catalogue
//! instead.

use std::fmt;

use borsh::{BorshDeserialize, BorshSerialize};

/// Makes the type of members from the list.
macro_rules! members {
    ($($member:ident: $line:expr,)*) => {
        /// Something in the server's memory: a member of `server`, or a global beside it.
        #[derive(
            BorshDeserialize, BorshSerialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
        )]
        #[expect(missing_docs, reason = "its line says what it is")]
        pub enum Member { $($member),* }

        impl Member {
            /// All of them, in the order of a plan.
            pub const ALL: &[Self] = &[$(Self::$member),*];

            /// Returns its line.
            pub const fn line(self) -> &'static MemberLine {
                match self { $(Self::$member => const { &$line }),* }
            }
        }
    };
}

members! {
    UsedMemory: in_sum("used_memory").gauge("evictscope_used_memory_bytes", "bytes", "Memory tracked by the allocator, at the last sample: used_memory of INFO."),
    EvictionPool: in_sum("EvictionPoolLRU"),
    // What has the scripts of EVAL, since Redis 7.0.
    EvalContext: in_sum("lctx").newer("evalCtx", None),
    TrackingTable: in_sum("TrackingTable"),
    TrackingTableTotalItems: in_sum("TrackingTableTotalItems").returned_by("trackingGetTotalItems"),
    LazyfreeObjects: in_sum("lazyfree_objects").returned_by("lazyfreeGetPendingObjectsCount"),

    Maxclients: mark("maxclients", "maxclients").int(),
    Maxmemory: mark("maxmemory", "maxmemory").gauge("evictscope_maxmemory_bytes", "bytes", "Configured memory limit, at the last sample. 0: no limit."),
    MaxmemoryPolicy: mark("maxmemory_policy", "maxmemory-policy").int(),
    Port: mark("port", "port").int(),
    ActiveExpireEffort: directive("active_expire_effort", "active-expire-effort").int(),
    // Before Valkey 8.1, `hz` is something else: what the server derives from `config_hz`.
    ConfigHz: directive("config_hz", "hz").newer("hz", None).int(),

    // What decides why evictions take long, and what helps.
    LazyfreeLazyEviction: directive("lazyfree_lazy_eviction", "lazyfree-lazy-eviction").int(),
    LazyfreeLazyUserDel: directive("lazyfree_lazy_user_del", "lazyfree-lazy-user-del").int(),
    LazyfreeLazyUserFlush: directive("lazyfree_lazy_user_flush", "lazyfree-lazy-user-flush").int().in_some(),
    MaxmemorySamples: directive("maxmemory_samples", "maxmemory-samples").int(),
    MaxmemoryEvictionTenacity: directive("maxmemory_eviction_tenacity", "maxmemory-eviction-tenacity").int().in_some(),
    MaxmemoryClients: directive("maxmemory_clients", "maxmemory-clients").in_some(),
    TrackingTableMaxKeys: directive("tracking_table_max_keys", "tracking-table-max-keys"),
    Dbnum: directive("dbnum", "databases").int(),
    // Redis 6.2 and later, and all Valkeys, have it right behind `proc_title_template`. Its own directive does not say
    // where.
    ClientObufLimits: directive("client_obuf_limits", "proc-title-template").behind(8).content(Content::Nine).in_some(),

    // What decides whether the limit applies, and how much of the memory counts: `freeMemoryGetNotCountedMemory()`.
    // Redis 7.0 has one buffer for all replicas; before, each has its own, and so has the process that rewrites the
    // AOF.
    Masterhost: in_sum("masterhost").newer("primary_host", None),
    ReplSlaveIgnoreMaxmemory: directive("repl_slave_ignore_maxmemory", "replica-ignore-maxmemory").newer("repl_replica_ignore_maxmemory", None).int(),
    Loading: in_sum("loading").int(),
    PausedActions: in_sum("paused_actions").int().in_some(),
    ReplBacklogSize: directive("repl_backlog_size", "repl-backlog-size"),
    ReplBufferMem: info("repl_buffer_mem", "mem_total_replication_buffers").in_some(),
    Slaves: in_sum("slaves").newer("replicas", None),
    AofEnabled: directive("aof_enabled", "appendonly").int(),
    AofBuf: in_sum("aof_buf"),
    AofRewriteBufBlocks: in_sum("aof_rewrite_buf_blocks").in_some(),

    // What memory is made of: `getMemoryOverheadData()`. Redis 6 has its scripts here.
    InitialMemoryUsage: in_sum("initial_memory_usage"),
    ReplBacklog: in_sum("repl_backlog"),
    StatClusterLinksMemory: in_sum("stat_cluster_links_memory").in_some().beside("mem_cluster_links"),
    LuaScripts: in_sum("lua_scripts").in_some(),
    LuaScriptsMem: in_sum("lua_scripts_mem").in_some(),
    ReplScriptcacheDict: in_sum("repl_scriptcache_dict").in_some(),
    ReplScriptcacheFifo: in_sum("repl_scriptcache_fifo").in_some(),

    ClusterEnabled: directive("cluster_enabled", "cluster-enabled").int(),
    ClusterPort: directive("cluster_port", "cluster-port").int().in_some(),
    IoThreadsNum: directive("io_threads_num", "io-threads").int(),
    StatActiveTime: in_sum("stat_active_time").in_some(),
    ChildPid: in_sum("child_pid").int().in_some().beside("total_error_replies"),
    Errors: in_sum("errors").in_some().beside("total_error_replies"),

    StatNumcommands: info("stat_numcommands", "total_commands_processed").counter("evictscope_commands_processed_total", "commands"),
    StatEvictedkeys: info("stat_evictedkeys", "evicted_keys").counter("evictscope_evicted_keys_total", "keys"),
    StatExpiredkeys: info("stat_expiredkeys", "expired_keys").counter("evictscope_expired_keys_total", "keys"),
    StatClientsTypeMemory: in_sum("stat_clients_type_memory").content(Content::Four),
    StatExpiredStalePerc: info("stat_expired_stale_perc", "expired_stale_perc").newer("stat_expired_keys_stale_perc", None).printed(Printed::Percentage).content(Content::Double),
    StatExpiredTimeCapReachedCount: info("stat_expired_time_cap_reached_count", "expired_time_cap_reached_count").counter("evictscope_expire_cycle_time_limit_hits_total", "cycles").about(" of expire cycles that ended at their time limit"),
    StatExpireCycleTimeUsed: info("stat_expire_cycle_time_used", "expire_cycle_cpu_milliseconds").printed(Printed::Milliseconds).in_some(),
    StatExpiredSubkeys: info("stat_expired_subkeys", "expired_subkeys").newer("stat_expiredfields", Some("expired_fields")).in_some(),
    StatTotalErrorReplies: info("stat_total_error_replies", "total_error_replies").in_some(),
    StatKeyspaceHits: info("stat_keyspace_hits", "keyspace_hits").counter("evictscope_keyspace_hits_total", "lookups"),
    StatKeyspaceMisses: info("stat_keyspace_misses", "keyspace_misses").counter("evictscope_keyspace_misses_total", "lookups"),
}

impl Member {
    /// Returns its name in Redis's source.
    pub const fn name(self) -> &'static str {
        self.line().name
    }

    /// Returns the text that explains its metric to Prometheus.
    pub fn help(self, metric: MemberMetric) -> String {
        match self.line().info.filter(|_| metric.is_counter()) {
            Some(info) => {
                let about = metric.about;
                format!("The server's own counter{about}: {info} of INFO. CONFIG RESETSTAT resets it.")
            }
            None => metric.about.to_owned(),
        }
    }

    /// Returns the members of `server`, which follow the globals.
    pub fn of_server() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|member| *member >= Self::Maxclients)
    }

    /// Returns the members that directives set, and the directives: with `marks` those that every table of directives
    /// has, otherwise the others.
    pub fn set_by_directives(marks: bool) -> impl Iterator<Item = (&'static str, Self)> {
        let here = Self::of_server().filter(move |member| member.line().is_mark == marks);
        here.filter_map(|member| Some((member.line().directive?, member)))
    }

    /// Returns the members that no directive sets.
    pub fn counted() -> impl Iterator<Item = Self> {
        Self::of_server().filter(|member| member.line().directive.is_none())
    }

    /// Returns what `INFO` prints: the name, the member, and how.
    pub fn printed() -> impl Iterator<Item = (&'static str, Self, Printed)> {
        Self::of_server().flat_map(|member| {
            let line = member.line();
            [line.info, line.newer_info].into_iter().flatten().map(move |name| (name, member, line.printed))
        })
    }

    /// Returns what `INFO` has a name for in versions that have a member, and the member.
    pub fn named() -> impl Iterator<Item = (&'static str, Self)> {
        let beside = Self::of_server().filter_map(|member| Some((member.line().beside?, member)));
        Self::printed().map(|(name, member, _)| (name, member)).chain(beside)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl serde::Serialize for Member {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How `INFO` prints a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printed {
    /// As it is.
    AsItIs,
    /// A fraction in percent: it is multiplied by 100.
    Percentage,
    /// Microseconds in milliseconds: they are divided by 1000.
    Milliseconds,
}

/// What is in a member's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A whole number of 8 bytes.
    Number,
    /// An `int`.
    Int,
    /// A `double`.
    Double,
    /// Four whole numbers of 8 bytes.
    Four,
    /// Nine of them.
    Nine,
}

impl Content {
    /// Returns its size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Int => 4,
            Self::Number | Self::Double => 8,
            Self::Four => 32,
            Self::Nine => 72,
        }
    }
}

/// A metric that exports a member unchanged, with no label but `server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberMetric {
    /// Its name. That of a counter ends in `_total`.
    pub name: &'static str,
    /// Its unit, as docs/METRICS.md has it.
    pub unit: &'static str,
    /// What it is: for a gauge the whole text, for a counter what follows "The server's own counter".
    pub(crate) about: &'static str,
}

impl MemberMetric {
    /// Returns whether it is a counter.
    pub fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }
}

/// A line of the list.
pub struct MemberLine {
    name: &'static str,
    /// The name that it has in the source of newer Valkeys, if that differs.
    pub newer_name: Option<&'static str>,
    /// The directive that sets it, or what is in front of it.
    pub directive: Option<&'static str>,
    /// How far behind what the directive sets it begins, bytes.
    pub behind: u64,
    /// Whether the table of directives is recognised by this directive.
    is_mark: bool,
    /// What `INFO` calls it.
    pub info: Option<&'static str>,
    /// What `INFO` of newer Valkeys calls it, if that differs.
    newer_info: Option<&'static str>,
    printed: Printed,
    /// Whether some versions lack it. It is missing in one that has it only if that is known: by its directive, or by
    /// what `INFO` [names](Member::named).
    pub is_in_some: bool,
    /// Something else that `INFO` shows in just the versions that have it.
    beside: Option<&'static str>,
    /// The function that returns it, of a global that may have no name.
    pub returned_by: Option<&'static str>,
    /// What is in its bytes.
    pub content: Content,
    /// The metric that exports it unchanged.
    pub metric: Option<MemberMetric>,
}

/// Begins the line of a member that nothing shows as it is.
const fn in_sum(name: &'static str) -> MemberLine {
    MemberLine {
        name,
        newer_name: None,
        directive: None,
        behind: 0,
        is_mark: false,
        info: None,
        newer_info: None,
        printed: Printed::AsItIs,
        is_in_some: false,
        beside: None,
        returned_by: None,
        content: Content::Number,
        metric: None,
    }
}

/// Begins the line of a member that `directive` sets, in versions that have it.
const fn directive(name: &'static str, directive: &'static str) -> MemberLine {
    let mut line = in_sum(name);
    line.directive = Some(directive);
    line
}

/// Begins the line of a member that `directive` sets in every version.
const fn mark(name: &'static str, set_by: &'static str) -> MemberLine {
    let mut line = directive(name, set_by);
    line.is_mark = true;
    line
}

/// Begins the line of a member that `INFO` calls `shown`.
const fn info(name: &'static str, shown: &'static str) -> MemberLine {
    let mut line = in_sum(name);
    line.info = Some(shown);
    line
}

impl MemberLine {
    const fn content(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    const fn behind(mut self, bytes: u64) -> Self {
        self.behind = bytes;
        self
    }

    const fn int(self) -> Self {
        self.content(Content::Int)
    }

    /// Says what it is called in the source of newer Valkeys, and what `INFO` calls it there.
    const fn newer(mut self, name: &'static str, info: Option<&'static str>) -> Self {
        self.newer_name = Some(name);
        self.newer_info = info;
        self
    }

    const fn printed(mut self, printed: Printed) -> Self {
        self.printed = printed;
        self
    }

    const fn in_some(mut self) -> Self {
        self.is_in_some = true;
        self
    }

    /// Says what else `INFO` shows in just the versions that have it.
    const fn beside(mut self, shown: &'static str) -> Self {
        self.beside = Some(shown);
        self
    }

    const fn returned_by(mut self, function: &'static str) -> Self {
        self.returned_by = Some(function);
        self
    }

    const fn gauge(mut self, name: &'static str, unit: &'static str, about: &'static str) -> Self {
        self.metric = Some(MemberMetric { name, unit, about });
        self
    }

    const fn counter(self, name: &'static str, unit: &'static str) -> Self {
        self.gauge(name, unit, "")
    }

    /// Says what a counter counts, if its name does not.
    const fn about(mut self, about: &'static str) -> Self {
        if let Some(metric) = &mut self.metric {
            metric.about = about;
        }
        self
    }
}
