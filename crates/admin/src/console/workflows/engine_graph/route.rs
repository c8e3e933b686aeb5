//! Where the nodes of the graph are drawn, and the lines between them.

use std::sync::LazyLock;

use contract::workflow::Node;
use serde::Deserialize;

/// The one declaration of the graph.
const DECLARED: &str = include_str!("../../../../../../workflow/graph.json");

/// A file that cannot be read is an empty graph, which the tests do not let pass.
static GRAPH: LazyLock<Graph> = LazyLock::new(|| serde_json::from_str(DECLARED).unwrap_or_default());

#[derive(Debug, Default, Deserialize)]
struct Graph {
    edges: Vec<(String, String)>,
}

/// The cell of a node: rows are drawn from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    column: usize,
    row: usize,
}

impl Place {
    pub(super) const WIDTH: usize = 134;
    pub(super) const HEIGHT: usize = 44;
    const COLUMN_STEP: usize = 156;
    const ROW_STEP: usize = 88;
    const LEFT: usize = 4;
    const TOP: usize = 52;

    pub(super) fn of(node: Node) -> Self {
        let (column, row) = match node {
            Node::LoadTaskContext => (0, 0),
            Node::PlanSteps => (1, 0),
            Node::DecideNext => (2, 0),
            Node::DispatchStep => (3, 0),
            Node::CollectResult => (4, 0),
            Node::VerifyStepResult => (5, 0),
            Node::AskPerson => (1, 1),
            Node::FinalizeSummary => (3, 1),
            Node::MarkFailed => (4, 1),
        };
        Self { column, row }
    }

    pub(super) fn left(self) -> usize {
        Self::LEFT + self.column * Self::COLUMN_STEP
    }

    pub(super) fn top(self) -> usize {
        Self::TOP + self.row * Self::ROW_STEP
    }

    pub(super) fn middle(self) -> usize {
        self.left() + Self::WIDTH / 2
    }

    fn right(self) -> usize {
        self.left() + Self::WIDTH
    }

    fn bottom(self) -> usize {
        self.top() + Self::HEIGHT
    }

    fn is_beside(self, other: Self) -> bool {
        self.row == other.row && self.column.abs_diff(other.column) == 1
    }

    fn height_of_middle(self) -> usize {
        self.top() + Self::HEIGHT / 2
    }
}

/// A line between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) from: Node,
    pub(super) to: Node,
    /// Whether it stands for the edge back, too.
    pub(super) is_mutual: bool,
    /// The attribute `d` of an SVG path.
    pub(super) path: String,
}

/// Returns the lines of all edges. Two nodes that follow each other have one with two arrows, or two lines if
/// there is no room for both arrows.
pub(super) fn lines() -> Vec<Line> {
    let edges: Vec<(Node, Node)> =
        GRAPH.edges.iter().filter_map(|(from, to)| Some((Node::named(from)?, Node::named(to)?))).collect();
    let mut lines: Vec<Line> = Vec::with_capacity(edges.len());
    for &(from, to) in &edges {
        let [start, end] = [from, to].map(Place::of);
        if start.is_beside(end) {
            let path = beside(start, end, edges.contains(&(to, from)));
            lines.push(Line { from, to, is_mutual: false, path });
            continue;
        }
        match lines.iter_mut().find(|line| (line.to, line.from) == (from, to)) {
            Some(line) => line.is_mutual = true,
            None => lines.push(Line { from, to, is_mutual: false, path: path(start, end) }),
        }
    }
    lines
}

/// The space between the tip of an arrow and its node.
const GAP: usize = 2;
/// The radius of a corner.
const BEND: usize = 8;
/// How far apart the lines at one side of a node are.
const APART: usize = 20;

fn path(from: Place, to: Place) -> String {
    let columns = from.column.abs_diff(to.column);
    match (from.row == to.row, columns) {
        (true, _) => above(from, to, columns),
        (false, 1) => around_corner(from, to),
        (false, _) => below(from, to),
    }
}

/// Returns a straight line to the neighbour, with room for the line back if there is one.
fn beside(from: Place, to: Place, has_line_back: bool) -> String {
    let (y, shift) = (from.height_of_middle(), if has_line_back { APART / 2 } else { 0 });
    if from.column < to.column {
        format!("M{} {} H{}", from.right() + GAP, y - shift, to.left() - GAP)
    } else {
        format!("M{} {} H{}", from.left() - GAP, y + shift, to.right() + GAP)
    }
}

/// Returns a line over the nodes between. The farther it goes, the higher it is, and the more to the left it
/// is at its left node: lines that end at the same node do not cross.
fn above(from: Place, to: Place, columns: usize) -> String {
    let (first, last) = if from.column < to.column { (from, to) } else { (to, from) };
    let shift = columns.saturating_sub(2) * APART;
    let end = |place: Place| {
        if place == first { (place.middle() + APART / 2).saturating_sub(shift) } else { place.middle() }
    };
    let y = Place::TOP.saturating_sub(18 * columns.saturating_sub(1)).max(BEND);
    let side = from.top() - GAP;
    let (x1, x2) = (end(from), end(to));
    // The corners, towards the other end.
    let (near, far) = if from == last { (x1 - BEND, x2 + BEND) } else { (x1 + BEND, x2 - BEND) };
    format!("M{x1} {side} V{0} Q{x1} {y} {near} {y} H{far} Q{x2} {y} {x2} {0} V{side}", y + BEND)
}

/// Returns a line to a node of another row in the next column, by its side.
fn around_corner(from: Place, to: Place) -> String {
    let (upper, lower) = if from.row < to.row { (from, to) } else { (to, from) };
    let y = lower.height_of_middle();
    let (x, near, end) = if lower.column < upper.column {
        let x = upper.middle() - APART;
        (x, x - BEND, lower.right() + GAP)
    } else {
        let x = upper.middle() + APART;
        (x, x + BEND, lower.left() - GAP)
    };
    let top = upper.bottom() + GAP;
    if from == upper {
        format!("M{x} {top} V{} Q{x} {y} {near} {y} H{end}", y - BEND)
    } else {
        format!("M{end} {y} H{near} Q{x} {y} {x} {} V{top}", y - BEND)
    }
}

/// Returns a line to a node of another row, below all nodes.
fn below(from: Place, to: Place) -> String {
    let lowest = if from.row < to.row { to } else { from };
    let y = lowest.bottom() + 22;
    let (x1, x2) = (from.middle(), to.middle());
    let (near, far) = if x1 < x2 { (x1 + BEND, x2 - BEND) } else { (x1 - BEND, x2 + BEND) };
    let (top, end) = (from.bottom() + GAP, to.bottom() + GAP);
    format!("M{x1} {top} V{0} Q{x1} {y} {near} {y} H{far} Q{x2} {y} {x2} {0} V{end}", y - BEND)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn declared() -> Value {
        serde_json::from_str(DECLARED).unwrap()
    }

    fn texts(value: &Value) -> BTreeSet<&str> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
    }

    #[test]
    fn every_declared_node_is_drawn_at_a_place_of_its_own() {
        let drawn: BTreeSet<&str> = Node::ALL.into_iter().map(Node::as_str).collect();
        assert_eq!(drawn, texts(&declared()["nodes"]));
        let place = |node: Node| (Place::of(node).left(), Place::of(node).top());
        let places: BTreeSet<(usize, usize)> = Node::ALL.into_iter().map(place).collect();
        assert_eq!(places.len(), Node::ALL.len());
    }

    #[test]
    fn every_declared_edge_is_drawn_and_no_other() {
        let declared = declared();
        let edges = declared["edges"].as_array().unwrap();
        let wanted: BTreeSet<(&str, &str)> =
            edges.iter().map(|edge| (edge[0].as_str().unwrap(), edge[1].as_str().unwrap())).collect();
        assert_eq!(wanted.len(), edges.len(), "an edge is declared twice");
        let mut drawn = BTreeSet::new();
        for line in lines() {
            drawn.insert((line.from.as_str(), line.to.as_str()));
            if line.is_mutual {
                drawn.insert((line.to.as_str(), line.from.as_str()));
            }
        }
        assert_eq!(drawn, wanted);
    }

    /// Returns where a path begins and ends.
    fn ends(path: &str) -> ((usize, usize), (usize, usize)) {
        let number = |word: &str| word.parse::<usize>().unwrap();
        let (mut start, mut at, mut words) = (None, (0, 0), path.split(' '));
        while let Some(word) = words.next() {
            let mut next = || number(words.next().unwrap());
            at = match word.split_at(1) {
                ("M", x) => (number(x), next()),
                ("H", x) => (number(x), at.1),
                ("V", y) => (at.0, number(y)),
                ("Q", _) => {
                    next();
                    (next(), next())
                }
                other => panic!("{other:?} in {path}"),
            };
            start = start.or(Some(at));
        }
        (start.unwrap(), at)
    }

    #[test]
    fn graph_edges_connect_their_nodes_by_distinct_paths() {
        let touches = |node: Node, (x, y): (usize, usize)| {
            let place = Place::of(node);
            (place.left() - GAP..=place.right() + GAP).contains(&x)
                && (place.top() - GAP..=place.bottom() + GAP).contains(&y)
        };
        let mut paths = BTreeSet::new();
        for line in lines() {
            let (start, end) = ends(&line.path);
            assert!(touches(line.from, start) && touches(line.to, end), "{line:?}");
            assert!(paths.insert(line.path.clone()), "{line:?}");
        }
    }
}
