//! Fetches the list of tools page by page, with limits on pages, tools and bytes.

use std::collections::HashSet;

use rmcp::{
    Peer, RoleClient,
    model::{ListToolsResult, PaginatedRequestParams, Tool},
};
use serde_json::{Map, Value};

use crate::{
    failure::{Failure, TextError},
    lease, raw,
};

const MAX_PAGES: usize = 50;
const MAX_TOOLS: usize = 2000;

pub(crate) async fn tools(peer: &Peer<RoleClient>, lease: Option<&str>) -> Result<Vec<Tool>, Failure> {
    let mut tools = Vec::new();
    let take = |page: ListToolsResult| {
        tools.extend(page.tools);
        Ok(tools.len())
    };
    pages(peer, lease, take).await?;
    Ok(tools)
}

/// Returns the tools as raw JSON objects with all fields that the server sent. The connection must have a
/// [`crate::Tap`].
pub async fn raw_tools(
    peer: &Peer<RoleClient>,
    max_bytes: usize,
) -> Result<Vec<Map<String, Value>>, Failure> {
    let (mut tools, mut bytes) = (Vec::new(), 0);
    let take = |mut page: ListToolsResult| {
        let (of_page, size) = take_raw_tools(&mut page)?;
        bytes += size;
        if bytes > max_bytes {
            return Err(protocol_error(format!("the list of tools has more than {max_bytes} bytes")));
        }
        tools.extend(of_page);
        Ok(tools.len())
    };
    pages(peer, None, take).await?;
    Ok(tools)
}

/// Fetches all pages and passes each to `take`, which returns the total number of tools so far.
async fn pages(
    peer: &Peer<RoleClient>,
    lease: Option<&str>,
    mut take: impl FnMut(ListToolsResult) -> Result<usize, Failure>,
) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    let request = |cursor: Option<String>| {
        let mut request = PaginatedRequestParams::default().with_cursor(cursor);
        request.meta = lease.map(|lease| lease::meta(Some(lease)));
        request
    };
    let mut page = lease.map(|_| request(None));
    for _ in 0..MAX_PAGES {
        let mut listed = peer.list_tools(page).await?;
        let cursor = listed.next_cursor.take();
        if take(listed)? > MAX_TOOLS {
            return Err(protocol_error(format!("more than {MAX_TOOLS} tools are listed")));
        }
        let Some(cursor) = cursor else { return Ok(()) };
        if !seen.insert(cursor.clone()) {
            return Err(protocol_error("the list of tools repeats a cursor".to_owned()));
        }
        page = Some(request(Some(cursor)));
    }
    Err(protocol_error(format!("the list of tools has more than {MAX_PAGES} pages")))
}

/// Takes the raw tools out of a page, together with the size of its message in bytes.
fn take_raw_tools(page: &mut ListToolsResult) -> Result<(Vec<Map<String, Value>>, usize), Failure> {
    let mut meta = page.meta.take().unwrap_or_default().0;
    let size =
        meta.remove(raw::SIZE).and_then(|size| size.as_u64()).and_then(|size| usize::try_from(size).ok());
    let (Some(Value::Array(tools)), Some(size)) = (meta.remove(raw::KEY), size) else {
        return Err(protocol_error("the list of tools is not a list".to_owned()));
    };
    let object = |tool| match tool {
        Value::Object(tool) => Ok(tool),
        _ => Err(protocol_error("a tool in the list is not an object".to_owned())),
    };
    Ok((tools.into_iter().map(object).collect::<Result<_, _>>()?, size))
}

fn protocol_error(text: String) -> Failure {
    Failure::protocol(TextError(text))
}
