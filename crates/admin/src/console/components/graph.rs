//! A graph of dependencies as SVG: in layers from left to right, each node a link.

use maud::{Markup, html};

use super::{Tone, visible};

const NODE_WIDTH: usize = 156;
const NODE_HEIGHT: usize = 46;
const LAYER_GAP: usize = 36;
const ROW_GAP: usize = 14;
/// The height of an edge that passes a layer.
const PASSING_HEIGHT: usize = 10;
const MARGIN: usize = 8;
const MAX_LABEL_CHARS: usize = 17;
/// How often the order within layers is improved.
const SWEEPS: usize = 8;

/// A node of a graph.
#[derive(Clone, Debug)]
pub(in super::super) struct GraphNode {
    pub(in super::super) label: String,
    /// The status, in a word.
    pub(in super::super) status: String,
    pub(in super::super) tone: Tone,
    /// Where the node leads; empty if it leads nowhere.
    pub(in super::super) address: String,
}

/// Renders a graph. An edge leads from a node to one that waits for it, by their indices.
pub(in super::super) fn graph(title: &str, nodes: &[GraphNode], edges: &[(usize, usize)]) -> Markup {
    let drawing = Drawing::new(nodes.len(), edges);
    let (width, height) = drawing.size();
    html! {
        div .scroll tabindex="0" role="group" aria-label=(title) {
            svg .graph width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) }
                role="presentation" {
                (arrowhead("dependency"))
                g aria-hidden="true" {
                    @for line in drawing.lines() {
                        path .edge d=(line) marker-end="url(#dependency)" {}
                    }
                }
                @for (node, (x, y)) in nodes.iter().zip(drawing.places()) {
                    (render(node, x, y))
                }
            }
        }
    }
}

/// Renders the definition of the tip of edges; `id` names it.
pub(in super::super) fn arrowhead(id: &str) -> Markup {
    html! {
        defs {
            marker id=(id) viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"
                orient="auto-start-reverse" {
                path .tip d="M0 0.5 L7.5 4 L0 7.5 z" {}
            }
        }
    }
}

/// Returns the class of a node's colour.
fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "is-good",
        Tone::Warn => "is-warn",
        Tone::Bad => "is-bad",
        Tone::Plain => "is-plain",
    }
}

fn render(node: &GraphNode, x: usize, y: usize) -> Markup {
    let label = visible(&node.label);
    let inner = html! {
        title { (label) ": " (node.status) }
        rect x=(x) y=(y) width=(NODE_WIDTH) height=(NODE_HEIGHT) rx="8" {}
        text .label x=(x + 11) y=(y + 19) { (shorten(&label)) }
        text .status x=(x + 11) y=(y + 36) { (node.status) }
    };
    html! {
        @if node.address.is_empty() {
            g class={ "node " (tone_class(node.tone)) } { (inner) }
        } @else {
            a class={ "node " (tone_class(node.tone)) } href=(node.address)
                aria-label={ (label) ": " (node.status) } { (inner) }
        }
    }
}

fn shorten(label: &str) -> String {
    match label.char_indices().nth(MAX_LABEL_CHARS) {
        None => label.to_owned(),
        Some((_, _)) => label.chars().take(MAX_LABEL_CHARS - 1).chain(['…']).collect(),
    }
}

/// Something that has a place in a layer: a node, or an edge that passes it.
#[derive(Clone, Debug)]
struct Item {
    layer: usize,
    is_node: bool,
    /// Items of the layer before and of the layer after.
    before: Vec<usize>,
    after: Vec<usize>,
    y: usize,
}

/// Where nodes and edges are drawn. The first items are the nodes, in their order.
struct Drawing {
    items: Vec<Item>,
    nodes: usize,
    /// The items of each layer, from top to bottom.
    layers: Vec<Vec<usize>>,
    /// The items along each edge.
    paths: Vec<Vec<usize>>,
}

impl Drawing {
    fn new(nodes: usize, edges: &[(usize, usize)]) -> Self {
        let layer_of = layer(nodes, edges);
        let item = |layer, is_node| Item { layer, is_node, before: Vec::new(), after: Vec::new(), y: 0 };
        let mut items: Vec<Item> = layer_of.iter().map(|&layer| item(layer, true)).collect();
        let mut paths = Vec::new();
        for &(from, to) in edges.iter().filter(|(from, to)| layer_of[*from] < layer_of[*to]) {
            let mut path = vec![from];
            for passed in layer_of[from] + 1..layer_of[to] {
                items.push(item(passed, false));
                path.push(items.len() - 1);
            }
            path.push(to);
            for pair in path.windows(2) {
                items[pair[0]].after.push(pair[1]);
                items[pair[1]].before.push(pair[0]);
            }
            paths.push(path);
        }
        let count = layer_of.iter().max().map_or(0, |last| last + 1);
        let mut layers = vec![Vec::new(); count];
        for (index, item) in items.iter().enumerate() {
            layers[item.layer].push(index);
        }
        let mut drawing = Self { items, nodes, layers, paths };
        drawing.order();
        drawing.stack();
        drawing
    }

    /// Puts items near to those that they are joined with, so that few edges cross.
    fn order(&mut self) {
        for sweep in 0..SWEEPS {
            let mut position = vec![0; self.items.len()];
            let place = |items: &[usize], position: &mut Vec<usize>| {
                items.iter().enumerate().for_each(|(at, &item)| position[item] = at);
            };
            self.layers.iter().for_each(|items| place(items, &mut position));
            let forward = sweep % 2 == 0;
            let mut turns: Vec<usize> = (0..self.layers.len()).collect();
            if !forward {
                turns.reverse();
            }
            for turn in turns {
                let key = |item: &usize| {
                    let joined = match forward {
                        true => &self.items[*item].before,
                        false => &self.items[*item].after,
                    };
                    match joined.len() {
                        0 => position[*item] * 1_000,
                        count => joined.iter().map(|other| position[*other] * 1_000).sum::<usize>() / count,
                    }
                };
                let mut items = self.layers[turn].clone();
                items.sort_by_key(key);
                place(&items, &mut position);
                self.layers[turn] = items;
            }
        }
    }

    /// Stacks the items of each layer, in the middle of the highest.
    fn stack(&mut self) {
        let total = self.layers.iter().map(|layer| self.height_of(layer)).max().unwrap_or(0);
        for layer in self.layers.clone() {
            let mut y = MARGIN + (total - self.height_of(&layer)) / 2;
            for item in layer {
                self.items[item].y = y;
                y += self.item_height(item) + ROW_GAP;
            }
        }
    }

    fn item_height(&self, item: usize) -> usize {
        if self.items[item].is_node { NODE_HEIGHT } else { PASSING_HEIGHT }
    }

    fn height_of(&self, layer: &[usize]) -> usize {
        let heights: usize = layer.iter().map(|&item| self.item_height(item)).sum();
        heights + layer.len().saturating_sub(1) * ROW_GAP
    }

    fn size(&self) -> (usize, usize) {
        let layers = self.layers.len().max(1);
        let height = self.layers.iter().map(|layer| self.height_of(layer)).max().unwrap_or(0);
        (layers * NODE_WIDTH + (layers - 1) * LAYER_GAP + 2 * MARGIN, height + 2 * MARGIN)
    }

    fn left(&self, item: usize) -> usize {
        MARGIN + self.items[item].layer * (NODE_WIDTH + LAYER_GAP)
    }

    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.nodes).map(|node| (self.left(node), self.items[node].y))
    }

    /// Returns the edges as paths of SVG: through the gaps in curves, past layers straight.
    fn lines(&self) -> impl Iterator<Item = String> {
        let middle = |item: usize| self.items[item].y + self.item_height(item) / 2;
        self.paths.iter().map(move |path| {
            let mut line = String::new();
            for pair in path.windows(2) {
                let (from, to) = (self.left(pair[0]) + NODE_WIDTH, self.left(pair[1]));
                let (start, end) = (middle(pair[0]), middle(pair[1]));
                let bend = usize::midpoint(from, to);
                let begin = if line.is_empty() { 'M' } else { 'L' };
                line.push_str(&format!("{begin}{from} {start} C{bend} {start} {bend} {end} {to} {end} "));
            }
            line.trim_end().to_owned()
        })
    }
}

/// Returns the layer of each node: one more than the last of those that it waits for. Edges that would close
/// a circle, which dependencies do not have, are ignored.
fn layer(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut layers = vec![0; nodes];
    for _ in 0..nodes {
        let mut has_changed = false;
        for &(from, to) in edges {
            if layers[to] <= layers[from] && layers[from] + 1 < nodes {
                layers[to] = layers[from] + 1;
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_stand_right_of_what_they_wait_for_and_do_not_overlap() {
        let edges = [(0, 1), (1, 2), (0, 2), (3, 2), (0, 4)];
        let drawing = Drawing::new(6, &edges);
        let places: Vec<(usize, usize)> = drawing.places().collect();
        for (from, to) in edges {
            assert!(places[from].0 + NODE_WIDTH < places[to].0, "{from} {to}");
        }
        for (one, (x, y)) in places.iter().enumerate() {
            for (other, (left, top)) in places.iter().enumerate().filter(|(other, _)| *other != one) {
                assert!(x != left || y.abs_diff(*top) >= NODE_HEIGHT, "{one} {other}");
            }
        }
        assert_eq!(drawing.lines().count(), edges.len());
        // The edge that passes a layer has a place of its own there.
        assert_eq!(drawing.lines().nth(2).unwrap().matches('C').count(), 2);
    }

    #[test]
    fn circles_and_single_nodes_are_drawn() {
        assert_eq!(Drawing::new(1, &[]).size(), (NODE_WIDTH + 2 * MARGIN, NODE_HEIGHT + 2 * MARGIN));
        let circle = Drawing::new(2, &[(0, 1), (1, 0)]);
        assert_eq!(circle.places().count(), 2);
    }

    #[test]
    fn labels_are_cut_between_characters() {
        assert_eq!(shorten("ä".repeat(30).as_str()).chars().count(), MAX_LABEL_CHARS);
        assert_eq!(shorten("short"), "short");
    }
}
