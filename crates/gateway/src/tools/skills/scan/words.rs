//! Splits a text into normalised words.

/// Returns the words of a text as a reader perceives them: in lower case, lookalike letters replaced, without
/// punctuation.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    for c in text.chars().map(to_latin) {
        match c {
            // `don't` is one word.
            '\'' | '’' => {}
            _ if c.is_alphanumeric() => word.extend(c.to_lowercase()),
            _ if word.is_empty() => {}
            _ => words.push(std::mem::take(&mut word)),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Replaces fullwidth letters, and letters of other alphabets that look like Latin ones.
fn to_latin(c: char) -> char {
    const LOOKALIKES: [(char, char); 22] = [
        ('а', 'a'),
        ('с', 'c'),
        ('ԁ', 'd'),
        ('е', 'e'),
        ('һ', 'h'),
        ('і', 'i'),
        ('ј', 'j'),
        ('ӏ', 'l'),
        ('о', 'o'),
        ('р', 'p'),
        ('ѕ', 's'),
        ('у', 'y'),
        ('х', 'x'),
        ('ѵ', 'v'),
        ('ԝ', 'w'),
        ('ο', 'o'),
        ('α', 'a'),
        ('ν', 'v'),
        ('ι', 'i'),
        ('ρ', 'p'),
        ('ı', 'i'),
        ('ո', 'n'),
    ];
    if let wide @ '\u{ff01}'..='\u{ff5e}' = c {
        // Fullwidth forms are in the order of ASCII.
        return char::from_u32(u32::from(wide) - 0xfee0).unwrap_or(c);
    }
    LOOKALIKES.iter().find(|(other, _)| *other == c).map_or(c, |(_, latin)| *latin)
}
