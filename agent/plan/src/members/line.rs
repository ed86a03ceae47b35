//! What the list of members says of each, and how a line of it is written.

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

/// What shows a member to the server's users, and so leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The directive of this name sets it.
    Directive {
        /// Its name, as `CONFIG GET` has it.
        name: &'static str,
        /// Whether the table of directives is known by having it.
        is_mark: bool,
    },
    /// `INFO` prints it.
    Info {
        /// What `INFO` calls it.
        name: &'static str,
        /// What newer Valkeys call it there, where that is another name.
        newer: Option<&'static str>,
        /// How it is printed.
        printed: Printed,
        /// Whether versions without the name have no such member.
        is_later: bool,
    },
    /// Only something that is made of several numbers shows it.
    InSum,
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
}

impl Content {
    /// Returns its size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Int => 4,
            Self::Number | Self::Double => 8,
            Self::Four => 32,
        }
    }
}

/// A metric that is a member as it is, with no label but `server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberMetric {
    /// Its name. That of a counter ends in `_total`.
    pub name: &'static str,
    /// Its unit, as docs/METRICS.md has it.
    pub unit: &'static str,
    /// What it is: of a gauge the whole text, of a counter what follows "The server's own counter".
    pub(super) about: &'static str,
}

impl MemberMetric {
    /// Tells whether it is a counter.
    pub fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }
}

/// A line of the list.
pub struct Line {
    /// Its name in Redis's source.
    pub name: &'static str,
    /// The name that it has in the source of newer Valkeys, where that is another one.
    pub newer_name: Option<&'static str>,
    pub shown: Shown,
    pub content: Content,
    pub metric: Option<MemberMetric>,
}

const fn line(name: &'static str, shown: Shown) -> Line {
    Line {
        name,
        newer_name: None,
        shown,
        content: Content::Number,
        metric: None,
    }
}

/// Begins the line of a member that `directive` sets, where a version has it.
pub const fn directive(name: &'static str, directive: &'static str) -> Line {
    let shown = Shown::Directive {
        name: directive,
        is_mark: false,
    };
    line(name, shown)
}

/// Begins the line of a member that `directive` sets in every version.
pub const fn mark(name: &'static str, directive: &'static str) -> Line {
    let shown = Shown::Directive {
        name: directive,
        is_mark: true,
    };
    line(name, shown)
}

/// Begins the line of a member that `INFO` calls `shown`.
pub const fn info(name: &'static str, shown: &'static str) -> Line {
    let shown = Shown::Info {
        name: shown,
        newer: None,
        printed: Printed::AsItIs,
        is_later: false,
    };
    line(name, shown)
}

/// Begins the line of what is shown in sums only.
pub const fn in_sum(name: &'static str) -> Line {
    line(name, Shown::InSum)
}

impl Line {
    pub const fn content(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    pub const fn int(self) -> Self {
        self.content(Content::Int)
    }

    /// Says what it is called in the source of newer Valkeys, and what `INFO` calls it there.
    pub const fn newer(mut self, name: &'static str, shown: Option<&'static str>) -> Self {
        self.newer_name = Some(name);
        if let Shown::Info { newer, .. } = &mut self.shown {
            *newer = shown;
        }
        self
    }

    /// Says how `INFO` prints it.
    pub const fn printed(mut self, as_what: Printed) -> Self {
        if let Shown::Info { printed, .. } = &mut self.shown {
            *printed = as_what;
        }
        self
    }

    /// Says that only later versions have it: where `INFO` has no name for it, it is not missing.
    pub const fn later(mut self) -> Self {
        if let Shown::Info { is_later, .. } = &mut self.shown {
            *is_later = true;
        }
        self
    }

    pub const fn gauge(
        mut self,
        name: &'static str,
        unit: &'static str,
        about: &'static str,
    ) -> Self {
        self.metric = Some(MemberMetric { name, unit, about });
        self
    }

    pub const fn counter(self, name: &'static str, unit: &'static str) -> Self {
        self.gauge(name, unit, "")
    }

    /// Says what a counter counts, where its name does not.
    pub const fn about(mut self, about: &'static str) -> Self {
        if let Some(metric) = &mut self.metric {
            metric.about = about;
        }
        self
    }
}
