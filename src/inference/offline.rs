use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

/// A model without a model: the same question always gets the same words, and it never pretends to have
/// understood. It lets a person try the whole path from handoff to answer before any model is connected.
#[derive(Clone, Debug)]
pub(crate) struct Offline {
    /// Thinking time, to see what a slow model does to everything around it.
    delay: Duration,
    calls: Counter,
}

impl Offline {
    pub(crate) const NAME: &'static str = "offline";

    pub(crate) fn new(delay: Duration, calls: Counter) -> Self {
        Self { delay, calls }
    }

    /// Says what it was asked, in one paragraph.
    pub(crate) async fn answer(&self, asked: &str) -> String {
        self.calls.inc();
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        format!("No language model is connected, so this is all I can say: I was asked “{}”.", excerpt(asked))
    }
}

/// The first words, on one line. No more is looked at than can be shown, however long the text.
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 240;
    let cut = text.floor_char_boundary(LONGEST);
    let mut out = String::with_capacity(cut + '…'.len_utf8());
    for word in text[..cut].split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    if cut < text.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G2: the same question, the same bytes.
    #[tokio::test]
    async fn the_same_question_gets_the_same_words() {
        let offline = Offline::new(Duration::ZERO, Counter::default());
        let (once, twice) = (offline.answer("what  now?").await, offline.answer("what now?").await);
        assert_eq!(once, twice);
        assert!(once.contains("“what now?”"), "{once}");
    }

    #[test]
    fn a_long_question_is_cut() {
        let text = excerpt(&"word ".repeat(1_000));
        assert!(text.len() < 250 && text.ends_with("word…"), "{text}");
        let text = excerpt(&"☂".repeat(1_000));
        assert!(text.len() < 250 && text.ends_with("☂…"), "{text}");
    }
}
