use std::time::Duration;

/// A model without a model: the same question always gets the same words, and it never pretends to have
/// understood. It lets a person try the whole path from handoff to answer before any model is connected.
#[derive(Clone, Debug)]
pub(crate) struct Offline {
    /// Thinking time, to see what a slow model does to everything around it.
    delay: Duration,
}

impl Offline {
    pub(crate) const NAME: &'static str = "offline";

    pub(crate) fn new(delay: Duration) -> Self {
        Self { delay }
    }

    /// Says what it was asked, in one paragraph.
    pub(crate) async fn answer(&self, asked: &str) -> String {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        format!("No language model is connected, so this is all I can say: I was asked “{}”.", excerpt(asked))
    }
}

/// The first words, on one line.
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 240;
    // No more is looked at than could be shown, however long the text.
    let cut = text.floor_char_boundary(4 * LONGEST);
    let (text, was_cut) = (&text[..cut], cut < text.len());
    let mut out = String::with_capacity(LONGEST.min(text.len()));
    for word in text.split_whitespace() {
        if out.len() + word.len() >= LONGEST {
            out.push('…');
            break;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    if was_cut && !out.ends_with('…') {
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
        let offline = Offline::new(Duration::ZERO);
        let (once, twice) = (offline.answer("what  now?").await, offline.answer("what now?").await);
        assert_eq!(once, twice);
        assert!(once.contains("“what now?”"), "{once}");
    }

    #[test]
    fn a_long_question_is_cut_between_words() {
        let text = excerpt(&"word ".repeat(1_000));
        assert!(text.len() < 250 && text.ends_with("word…"), "{text}");
        assert_eq!(excerpt(&"x".repeat(1_000)), "…");
    }
}
