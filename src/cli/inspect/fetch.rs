//! Gets a page from a file or, with the feature `cluster`, over HTTP, within bounds.
//!
//! Worked number: a body that never ends is given up after 4 MiB, one that never comes after 3 s.

use crate::cli::Failure;
use crate::engine::exposition::{MAX_BODY, PageError};
use anyhow::{Context, anyhow};
use std::io::Read;

/// The bytes of the page, at most [`MAX_BODY`] of them.
pub(super) fn body(source: &str) -> Result<Vec<u8>, Failure> {
    if source.starts_with("http://") || source.starts_with("https://") {
        return http(source);
    }
    let file = std::fs::File::open(source).with_context(|| {
        format!("cannot open {source}; give a saved page or an http:// address")
    })?;
    let mut bytes = Vec::new();
    file.take(MAX_BODY as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {source}"))?;
    if bytes.len() > MAX_BODY { Err(too_large(source)) } else { Ok(bytes) }
}

fn too_large(source: &str) -> Failure {
    Failure::invalid(anyhow!(PageError::TooLarge).context(format!("cannot read {source}")))
}

#[cfg(not(feature = "cluster"))]
fn http(source: &str) -> Result<Vec<u8>, Failure> {
    Err(anyhow!(
        "cannot fetch {source}: this build has no network (feature `cluster` is off); save the \
         page with `curl -s {source} > page.txt` and inspect the file"
    )
    .into())
}

#[cfg(feature = "cluster")]
fn http(source: &str) -> Result<Vec<u8>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime that fetches pages")?;
    runtime.block_on(get(source))
}

#[cfg(feature = "cluster")]
async fn get(source: &str) -> Result<Vec<u8>, Failure> {
    // Two TLS providers in one build make rustls panic at first use: choose one, once. The error
    // says that somebody chose before us, which is just as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .timeout(std::time::Duration::from_secs(3))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .context("cannot set up the HTTP client")?;
    let unreachable = || format!("cannot fetch {source}");
    let mut answer = client
        .get(source)
        .header("accept", "text/plain;version=0.0.4, text/plain;q=0.8, */*;q=0.1")
        .send()
        .await
        .with_context(unreachable)?;
    let status = answer.status();
    if status.as_u16() != 200 {
        let hint = if status.is_redirection() {
            "redirects are not followed; give the address it points to"
        } else {
            "metrics may be broken while inference works; look at the engine's log"
        };
        return Err(anyhow!("{source} answered {status}: {hint}").into());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.with_context(unreachable)? {
        if bytes.len() + chunk.len() > MAX_BODY {
            return Err(too_large(source));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
