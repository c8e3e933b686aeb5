//! Markdown of models as HTML. Each tag is written here: HTML in the text is shown as text, images become
//! links, and links lead only to web and mail addresses.

use maud::{Markup, PreEscaped, Render, html};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::components::visible_lines;

/// Renders a text. Headings begin below those of the page.
pub(super) fn render(text: &str) -> Markup {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer::default();
    for event in Parser::new_ext(text, options) {
        writer.write(event);
    }
    PreEscaped(writer.out)
}

#[derive(Default)]
struct Writer {
    out: String,
    alignments: Vec<Alignment>,
    /// The column of the current cell.
    column: usize,
    in_table_head: bool,
    /// For each open link or image, whether its tag was written.
    links: Vec<bool>,
}

impl Writer {
    fn write(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.open(tag),
            Event::End(tag) => self.close(tag),
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => self.text(&text),
            Event::Code(text) => self.markup(&html! { code { (shown(&text)) } }),
            Event::SoftBreak => self.raw("\n"),
            Event::HardBreak => self.raw("<br>"),
            Event::Rule => self.raw("<hr>"),
            Event::TaskListMarker(is_done) => self.raw(if is_done { "☑ " } else { "☐ " }),
        }
    }

    fn open(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.raw("<p>"),
            Tag::Heading { level, .. } => self.raw(heading(level).0),
            Tag::BlockQuote(_) => self.raw("<blockquote>"),
            Tag::CodeBlock(kind) => {
                let language = match &kind {
                    CodeBlockKind::Fenced(info) => info.split([' ', ',']).next().unwrap_or_default(),
                    CodeBlockKind::Indented => "",
                };
                self.raw("<div class=\"block\">");
                if !language.is_empty() {
                    self.markup(&html! { span .language { (shown(language)) } });
                }
                self.raw("<pre tabindex=\"0\"><code>");
            }
            Tag::List(None) => self.raw("<ul>"),
            Tag::List(Some(1)) => self.raw("<ol>"),
            Tag::List(Some(first)) => self.raw(&format!("<ol start=\"{first}\">")),
            Tag::Item => self.raw("<li>"),
            Tag::Table(alignments) => {
                self.alignments = alignments;
                self.raw("<div class=\"scroll\" tabindex=\"0\"><table>");
            }
            Tag::TableHead => {
                (self.in_table_head, self.column) = (true, 0);
                self.raw("<thead><tr>");
            }
            Tag::TableRow => {
                self.column = 0;
                self.raw("<tr>");
            }
            Tag::TableCell => {
                let class = match self.alignments.get(self.column) {
                    Some(Alignment::Right) => " class=\"right\"",
                    Some(Alignment::Center) => " class=\"centre\"",
                    _ => "",
                };
                self.column += 1;
                let name = if self.in_table_head { "th scope=\"col\"" } else { "td" };
                self.raw(&format!("<{name}{class}>"));
            }
            Tag::Emphasis => self.raw("<em>"),
            Tag::Strong => self.raw("<strong>"),
            Tag::Strikethrough => self.raw("<s>"),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => self.open_link(&dest_url),
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn close(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.raw("</p>"),
            TagEnd::Heading(level) => self.raw(heading(level).1),
            TagEnd::BlockQuote(_) => self.raw("</blockquote>"),
            TagEnd::CodeBlock => self.raw("</code></pre></div>"),
            TagEnd::List(false) => self.raw("</ul>"),
            TagEnd::List(true) => self.raw("</ol>"),
            TagEnd::Item => self.raw("</li>"),
            TagEnd::Table => self.raw("</tbody></table></div>"),
            TagEnd::TableHead => {
                self.in_table_head = false;
                self.raw("</tr></thead><tbody>");
            }
            TagEnd::TableRow => self.raw("</tr>"),
            TagEnd::TableCell => self.raw(if self.in_table_head { "</th>" } else { "</td>" }),
            TagEnd::Emphasis => self.raw("</em>"),
            TagEnd::Strong => self.raw("</strong>"),
            TagEnd::Strikethrough => self.raw("</s>"),
            TagEnd::Link | TagEnd::Image => {
                if self.links.pop() == Some(true) {
                    self.raw("</a>");
                }
            }
            TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    /// Opens a link, unless its address is not safe or it is inside another link.
    fn open_link(&mut self, address: &str) {
        let is_written = is_safe(address) && !self.links.contains(&true);
        if is_written {
            self.raw("<a rel=\"noopener noreferrer nofollow\" target=\"_blank\" href=\"");
            address.render_to(&mut self.out);
            self.raw("\">");
        }
        self.links.push(is_written);
    }

    fn text(&mut self, text: &str) {
        shown(text).render_to(&mut self.out);
    }

    fn markup(&mut self, markup: &Markup) {
        self.out.push_str(&markup.0);
    }

    fn raw(&mut self, html: &str) {
        self.out.push_str(html);
    }
}

fn heading(level: HeadingLevel) -> (&'static str, &'static str) {
    match level {
        HeadingLevel::H1 => ("<h3>", "</h3>"),
        HeadingLevel::H2 => ("<h4>", "</h4>"),
        HeadingLevel::H3 => ("<h5>", "</h5>"),
        HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => ("<h6>", "</h6>"),
    }
}

/// Escapes invisible characters, and keeps line breaks, also the last.
fn shown(text: &str) -> String {
    let mut out = visible_lines(text);
    if text.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn is_safe(address: &str) -> bool {
    let address = address.to_ascii_lowercase();
    let is_known = ["https://", "http://", "mailto:"].iter().any(|scheme| address.starts_with(scheme));
    is_known && address.bytes().all(|byte| byte.is_ascii_graphic() || !byte.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html_of(text: &str) -> String {
        render(text).into_string()
    }

    #[test]
    fn markdown_becomes_html() {
        for (text, expected) in [
            (
                "# One\n\ntwo *three* **four** ~~five~~",
                "<h3>One</h3><p>two <em>three</em> <strong>four</strong> <s>five</s></p>",
            ),
            ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
            ("3. a\n4. b", "<ol start=\"3\"><li>a</li><li>b</li></ol>"),
            ("- [x] done\n- [ ] open", "<ul><li>☑ done</li><li>☐ open</li></ul>"),
            ("`a < b`", "<p><code>a &lt; b</code></p>"),
            ("> quoted", "<blockquote><p>quoted</p></blockquote>"),
            ("a  \nb\n\n---", "<p>a<br>b</p><hr>"),
        ] {
            assert_eq!(html_of(text), expected, "{text}");
        }
        let code = html_of("```rust\nlet a = 1 < 2;\n\n```");
        assert!(code.contains("<pre tabindex=\"0\"><code>let a = 1 &lt; 2;\n\n</code></pre>"), "{code}");
        assert!(code.contains("<span class=\"language\">rust</span>"), "{code}");
        let table = html_of("| a | b |\n|---|--:|\n| 1 | 2 |");
        assert!(
            table.contains("<th scope=\"col\">a</th><th scope=\"col\" class=\"right\">b</th>"),
            "{table}"
        );
        assert!(table.contains("<tbody><tr><td>1</td><td class=\"right\">2</td></tr></tbody>"), "{table}");
    }

    #[test]
    fn nothing_of_the_text_becomes_a_tag_or_runs() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<div onclick=\"x()\">\n\n**bold**\n\n</div>",
            "<style>*{display:none}</style>",
            "```\"><script>alert(1)</script>\nx\n```",
            "`<script>`",
            "[a](<javascript:alert(1)>)",
            "[a](JaVaScRiPt:alert(1))",
            "[a](data:text/html;base64,PHNjcmlwdD4=)",
            "[a](/console/logout)",
            "![a](https://evil.example/track.png)",
            "[a](https://a.example/\"onmouseover=\"alert(1))",
            "[![a](https://a.example/b.png)](javascript:alert(1))",
            "<https://a.example/<script>>",
            "| <script> |\n|---|\n| <b> |",
        ] {
            let out = html_of(text);
            for evil in [
                "<script", "<img", "<div on", "<style", "<b>", "href=\"j", "href=\"J", "href=\"d", "href=\"/",
            ] {
                assert!(!out.contains(evil), "{evil} of {text}: {out}");
            }
            assert!(!out.contains("\" onmouseover") && !out.contains("\"onmouseover"), "{out}");
        }
        assert!(html_of("a\u{202e}b").contains("\\u{202e}"));
        let link = html_of("[a](https://a.example/?b=1&c=2)");
        assert!(link.contains("href=\"https://a.example/?b=1&amp;c=2\">a</a>"), "{link}");
    }

    #[test]
    fn unfinished_text_is_rendered() {
        let text = "# A\n\n| a | b |\n|---|---|\n| 1 | `2` |\n\n```rust\nlet a = \"**\";\n```\n\
                    [x](https://a.example)";
        for end in text.char_indices().map(|(at, _)| at) {
            let out = html_of(&text[..end]);
            assert_eq!(out.matches("<table>").count(), out.matches("</table>").count(), "{out}");
            assert_eq!(out.matches("<a ").count(), out.matches("</a>").count(), "{out}");
            assert_eq!(out.matches("<pre").count(), out.matches("</pre>").count(), "{out}");
        }
    }
}
