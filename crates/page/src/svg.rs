//! Drawings as SVG text. Lengths are tenths of a pixel, so that no drawing depends on how fractions are rounded.

use std::fmt::Write;

/// A place in a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// From the left, in tenths of a pixel.
    pub x: u64,
    /// From above, in tenths of a pixel.
    pub y: u64,
}

/// A rectangle in a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Its upper left corner.
    pub at: Point,
    /// In tenths of a pixel.
    pub width: u64,
    /// In tenths of a pixel.
    pub height: u64,
}

/// Where a text stands against its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// In one piece.
    Solid,
    /// In pieces.
    Dashed,
}

/// A drawing being made.
#[derive(Debug)]
pub struct Drawing {
    width: u64,
    height: u64,
    body: String,
}

impl Drawing {
    /// An empty one, of this size in tenths of a pixel.
    #[must_use]
    pub fn new(width: u64, height: u64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// A filled rectangle; `title` is shown by a pointer that rests on it.
    pub fn area(&mut self, area: Area, fill: &str, title: &str) {
        let Area { at, width, height } = area;
        self.add(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"><title>{}</title></rect>",
            px(at.x),
            px(at.y),
            px(width),
            px(height),
            escaped(title)
        ));
    }

    /// A line of text.
    pub fn text(&mut self, at: Point, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (px(at.x), px(at.y));
        self.add(format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>", escaped(text)));
    }

    /// A thin line of a grid.
    pub fn rule(&mut self, from: Point, to: Point) {
        self.add(format_args!(
            "<line class=\"rule\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            px(from.x),
            px(from.y),
            px(to.x),
            px(to.y)
        ));
    }

    /// A line through points, with a dot on each.
    pub fn curve(&mut self, points: &[Point], colour: &str, stroke: Stroke, title: &str) {
        self.line(points, colour, stroke, title);
        for at in points {
            self.add(format_args!(
                "<circle cx=\"{}\" cy=\"{}\" r=\"2.5\" fill=\"{colour}\"/>",
                px(at.x),
                px(at.y)
            ));
        }
    }

    /// A ring around a point that stands out.
    pub fn ring(&mut self, at: Point, colour: &str, title: &str) {
        self.add(format_args!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"7\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"><title>{}</title></circle>",
            px(at.x),
            px(at.y),
            escaped(title)
        ));
    }

    /// A line through points.
    pub fn line(&mut self, points: &[Point], colour: &str, stroke: Stroke, title: &str) {
        let list: Vec<String> = points.iter().map(|at| format!("{},{}", px(at.x), px(at.y))).collect();
        let dash = if stroke == Stroke::Dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        self.add(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}><title>{}</title></polyline>",
            list.join(" "),
            escaped(title)
        ));
    }

    /// The whole element; `label` says what is drawn to those who do not see it.
    #[must_use]
    pub fn finish(self, label: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" aria-label=\"{2}\">\n{3}</svg>\n",
            px(self.width),
            px(self.height),
            escaped(label),
            self.body
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }
}

/// `part` of `whole`, laid on `length`.
#[must_use]
pub fn scaled(part: u64, whole: u64, length: u64) -> u64 {
    let laid = u128::from(part) * u128::from(length) / u128::from(whole.max(1));
    u64::try_from(laid).unwrap_or(length)
}

fn px(tenths: u64) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Text that may hold anything, as text of a page.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() && c != '\n' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_a_page() {
        assert_eq!(escaped("<b a='1'>&\"\u{7}"), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;\u{fffd}");
        let mut drawing = Drawing::new(100, 50);
        drawing.text(Point { x: 5, y: 12 }, Anchor::End, "</svg>");
        let text = drawing.finish("a \"plan\"");
        assert!(text.contains("<text x=\"0.5\" y=\"1.2\" text-anchor=\"end\">&lt;/svg&gt;</text>"), "{text}");
        assert_eq!(text.matches("</svg>").count(), 1);
    }

    #[test]
    fn lengths_are_laid_without_overflow() {
        assert_eq!(scaled(u64::MAX, u64::MAX, 10_000), 10_000);
        assert_eq!(scaled(1, 0, 10), 10);
        assert_eq!(scaled(1, 3, 10_000), 3333);
    }
}
