//! Reads what the script in a virtual machine (`answers.sh`) writes to its console.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

const MARK: &str = "@@ ";

/// The answers of one machine, by name.
pub struct Answers(BTreeMap<String, Answer>);

/// What one command in the machine wrote, and how it ended.
pub struct Answer {
    /// Its output.
    pub text: String,
    /// Whether its exit code was 0.
    pub success: bool,
}

impl Answers {
    /// Reads a console. Lines between two answers are the kernel's or the boot loader's.
    pub fn read(console: &str) -> Result<Self> {
        let mut answers = BTreeMap::new();
        let mut open: Option<(&str, String)> = None;
        for line in console.lines().map(|line| line.trim_end_matches('\r')) {
            match (line.strip_prefix(MARK), &mut open) {
                (Some(mark), Some((name, text))) => {
                    if let Some(code) = mark.strip_prefix("ended ") {
                        let answer = Answer {
                            text: std::mem::take(text),
                            success: code == "0",
                        };
                        answers.insert((*name).to_owned(), answer);
                        open = None;
                    }
                }
                (Some(name), None) => open = Some((name, String::new())),
                (None, Some((_, text))) => {
                    text.push_str(line);
                    text.push('\n');
                }
                (None, None) => {}
            }
        }
        let mut in_vain = answers
            .iter()
            .filter(|(name, _)| name.starts_with("never_true"));
        if let Some((name, answer)) = in_vain.next() {
            bail!("in the machine, {name}:\n{}", answer.text);
        }
        Ok(Self(answers))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Result<&Answer> {
        let answer = self.0.get(name);
        answer.with_context(|| format!("the machine did not answer `{name}`"))
    }

    /// Returns the text of an answer, without white space around it.
    pub fn text(&self, name: &str) -> Result<&str> {
        Ok(self.get(name)?.text.trim())
    }

    /// Returns an answer that is one word, such as a number.
    pub fn word<T: FromStr>(&self, name: &str) -> Result<T> {
        let text = self.text(name)?;
        let word = text.parse().ok();
        word.with_context(|| format!("the machine answered `{name}` with `{text}`"))
    }

    /// Returns what a line `KEY=VALUE`, `KEY:VALUE` or `KEY:\tVALUE` of an answer says.
    pub fn value(&self, name: &str, key: &str) -> Result<&str> {
        let mut lines = self.text(name)?.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(['=', ':']));
        let value = value.with_context(|| format!("the machine's `{name}` has no `{key}`"))?;
        Ok(value.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart_from_what_the_kernel_writes_between_them() -> Result<()> {
        let console =
            "boot\r\n@@ one\r\na:1\r\nb=2\r\n@@ ended 0\r\nnoise\r\n@@ two\r\n7\r\n@@ ended 3\r\n";
        let answers = Answers::read(console)?;
        assert!(answers.get("one")?.success);
        assert_eq!(answers.value("one", "a")?, "1");
        assert_eq!(answers.value("one", "b")?, "2");
        assert!(!answers.get("two")?.success);
        assert_eq!(answers.word::<u32>("two")?, 7);
        assert!(answers.get("noise").is_err());
        Ok(())
    }

    #[test]
    fn a_wait_in_vain_is_an_error() {
        let console = "@@ never_true: redis-cli ping\nwhy\n@@ ended 0\n";
        let error = Answers::read(console).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("redis-cli ping:\nwhy")));
    }
}
