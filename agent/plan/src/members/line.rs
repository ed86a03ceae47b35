//! What the list of members says about each, and how its lines are written.

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

/// A metric that exports a member unchanged, with no label but `server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberMetric {
    /// Its name. That of a counter ends in `_total`.
    pub name: &'static str,
    /// Its unit, as docs/METRICS.md has it.
    pub unit: &'static str,
    /// What it is: for a gauge the whole text, for a counter what follows "The server's own counter".
    pub(super) about: &'static str,
}

impl MemberMetric {
    /// Returns whether it is a counter.
    pub fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }
}

/// A line of the list.
pub struct Line {
    /// Its name in Redis's source.
    pub name: &'static str,
    /// The name that it has in the source of newer Valkeys, if that differs.
    pub newer_name: Option<&'static str>,
    /// The directive that sets it.
    pub directive: Option<&'static str>,
    /// Whether the table of directives is recognised by this directive.
    pub is_mark: bool,
    /// What `INFO` calls it.
    pub info: Option<&'static str>,
    /// What `INFO` of newer Valkeys calls it, if that differs.
    pub newer_info: Option<&'static str>,
    pub printed: Printed,
    /// Whether some versions have no such member.
    pub is_in_some: bool,
    /// Something else that `INFO` shows in just the versions that have it.
    pub beside: Option<&'static str>,
    pub content: Content,
    pub metric: Option<MemberMetric>,
}

/// Begins the line of a member that nothing shows as it is.
pub const fn in_sum(name: &'static str) -> Line {
    Line {
        name,
        newer_name: None,
        directive: None,
        is_mark: false,
        info: None,
        newer_info: None,
        printed: Printed::AsItIs,
        is_in_some: false,
        beside: None,
        content: Content::Number,
        metric: None,
    }
}

/// Begins the line of a member that `directive` sets, in versions that have it.
pub const fn directive(name: &'static str, directive: &'static str) -> Line {
    let mut line = in_sum(name);
    line.directive = Some(directive);
    line
}

/// Begins the line of a member that `directive` sets in every version.
pub const fn mark(name: &'static str, set_by: &'static str) -> Line {
    let mut line = directive(name, set_by);
    line.is_mark = true;
    line
}

/// Begins the line of a member that `INFO` calls `shown`.
pub const fn info(name: &'static str, shown: &'static str) -> Line {
    let mut line = in_sum(name);
    line.info = Some(shown);
    line
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
    pub const fn newer(mut self, name: &'static str, info: Option<&'static str>) -> Self {
        self.newer_name = Some(name);
        self.newer_info = info;
        self
    }

    pub const fn printed(mut self, printed: Printed) -> Self {
        self.printed = printed;
        self
    }

    pub const fn in_some(mut self) -> Self {
        self.is_in_some = true;
        self
    }

    /// Says what else `INFO` shows in just the versions that have it.
    pub const fn beside(mut self, shown: &'static str) -> Self {
        self.beside = Some(shown);
        self
    }

    pub const fn gauge(mut self, name: &'static str, unit: &'static str, about: &'static str) -> Self {
        self.metric = Some(MemberMetric { name, unit, about });
        self
    }

    pub const fn counter(self, name: &'static str, unit: &'static str) -> Self {
        self.gauge(name, unit, "")
    }

    /// Says what a counter counts, if its name does not.
    pub const fn about(mut self, about: &'static str) -> Self {
        if let Some(metric) = &mut self.metric {
            metric.about = about;
        }
        self
    }
}
