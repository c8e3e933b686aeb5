//! What the audit of nodes lacks, for the page of the audit.

use api::{NodeAlarm, NodeAudit};
use maud::{Markup, html};

use crate::console::{
    components::{Tone, badge, visible},
    format,
};

/// Alarms that are shown; the others are in `cynodectl audit verify`.
const MAX_SHOWN: usize = 20;

/// Renders whether the audit of nodes is whole. Nothing if there are no nodes.
pub(super) fn render(of_nodes: &NodeAudit) -> Markup {
    let open: Vec<&NodeAlarm> = of_nodes.alarms.iter().filter(|alarm| alarm.resolved_at.is_none()).collect();
    html! {
        @if !open.is_empty() {
            p {
                (badge(Tone::Bad, "Nodes"))
                " The audit of nodes is not intact: " (open.len()) " alarms."
            }
            ul {
                @for alarm in open.iter().take(MAX_SHOWN) {
                    li {
                        "Node " bdi { (visible(&alarm.node)) }
                        ", lease " bdi { (visible(&alarm.lease_id)) } ": "
                        (visible(&alarm.detail)) " (" (format::time(alarm.raised_at)) ")"
                    }
                }
            }
        } @else if !of_nodes.leases.is_empty() {
            p { (badge(Tone::Good, "Nodes")) " The audit of nodes has no alarms." }
        }
    }
}
