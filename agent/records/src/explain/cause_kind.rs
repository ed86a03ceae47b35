//! The kinds of causes, and what people call them.

use std::fmt;

/// Makes the causes, with their names for people, from one list.
macro_rules! causes {
    ($($(#[$says:meta])* $kind:ident: $name:literal,)*) => {
        /// Why it happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "their names for people say what they are")]
        pub enum CauseKind { $($(#[$says])* $kind),* }

        impl CauseKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind),*];
        }

        /// The name for people.
        impl fmt::Display for CauseKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$kind => $name),* })
            }
        }
    };
}

causes! {
    ClientBuffers: "client buffers",
    ReplicationBuffers: "replication and AOF buffers",
    Scripts: "scripts",
    ClusterLinks: "buffers of cluster links",
    TrackingTable: "the tracking table",
    /// A single step by a power of two.
    ResizedTable: "a hash table that was resized",
    /// Expired keys were held.
    ExpiryBehind: "expiry that was behind",
    /// Slow evicting calls chose keys, …
    Choosing: "the choice of keys",
    /// … freed big values in the main thread, …
    BigKey: "a big key",
    /// … told clients that had tracked a key, …
    Invalidating: "the invalidation of tracked keys",
    /// … told replicas and others, …
    Telling: "telling others of evicted keys",
    /// … or slept.
    Slept: "an evicting call that slept",
    /// The data grew to the limit, and there is no other cause.
    Data: "writes",
    LoweredLimit: "a lower maxmemory",
    NothingToEvict: "no key that could be evicted",
    ExpiredTogether: "keys that expire at once",
    Commands: "slow commands, or too many",
    NoCpu: "the lack of a CPU",
    Quota: "a CPU quota",
    /// A process that the server had forked took its CPU.
    Fork: "a fork",
    Blocked: "a blocked main thread",
    /// A command removed all keys, or a resync did.
    Flushed: "a flush",
    /// Until it was promoted.
    ExpiredByPromotion: "expired keys that a replica held",
    /// Deleted values were still being freed.
    LazyFreeing: "lazy freeing that was behind",
    /// After a promotion, or once the data was loaded.
    OverLimit: "more memory than maxmemory from the start",
    /// Keys went, and memory did not fall.
    MemoryStayed: "memory that did not fall",
}
