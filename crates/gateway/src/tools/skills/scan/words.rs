/// The words of a text as a reader takes them: in lower case, letters that look alike made one, punctuation left out.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    for c in text.chars().map(plain) {
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

/// Wide letters, and letters of other alphabets that pass for Latin ones.
fn plain(c: char) -> char {
    const ALIKE: [(char, char); 22] = [
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
        // The wide forms stand in the order of ASCII.
        return char::from_u32(u32::from(wide) - 0xfee0).unwrap_or(c);
    }
    ALIKE.iter().find(|(other, _)| *other == c).map_or(c, |(_, latin)| *latin)
}
