//! `codex-mcp eyes-mcp`: the tool `request_image` for Codex.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, io};

use codex_protocol::lines::DEFAULT_LINE_LIMIT;
use image_request::ImageRoot;
use image_request::logic::picture::SizeLimit;
use image_request::logic::queue::WrapperId;
use mcp_server::{Eyes, PictureDelivery, serve_eyes};
use rmcp::transport::stdio_pipes;

use super::shutdown::{self, Shutdown};
use super::stdio::Preflight;
use super::values::size_limit;
use super::{log, runtime};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How a request is answered.
    #[arg(long, value_enum, default_value = "later")]
    answer: AnswerKind,

    /// The directory that Codex works in. Pictures are searched for there and in the git
    /// repository around it. Default: the current one.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// The largest picture, in bytes, up to 100 MB. As an answer, large ones are scaled
    /// down.
    #[arg(long, value_name = "BYTES", value_parser = size_limit, default_value_t)]
    max_image_bytes: SizeLimit,

    /// The wrapper that serves the requests.
    #[arg(long, value_name = "NAME", hide = true)]
    wrapper: Option<WrapperId>,
}

/// See [`PictureDelivery`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum AnswerKind {
    /// The picture itself: any Codex sees it at once
    Picture,
    /// A promise: `codex-mcp eyes` restarts Codex with the picture attached
    Later,
}

pub(super) fn run(args: &Args) -> ExitCode {
    if args.wrapper.is_some() {
        // Codex has started this process, so no person reads stderr.
        log::start();
        return log::exit(serve(args));
    }
    let preflight = Preflight::new();
    let logging = preflight.logging();
    logging.start();
    let verdict = preflight.verdict().map_err(io::Error::other);
    let served = verdict.and_then(|()| {
        preflight.report();
        serve(args)
    });
    match served {
        Ok(code) => code,
        Err(error) => {
            logging.end(&error);
            ExitCode::FAILURE
        }
    }
}

fn serve(args: &Args) -> io::Result<ExitCode> {
    let directory = match &args.root {
        Some(directory) => directory.clone(),
        None => env::current_dir()?,
    };
    let place = ImageRoot::around(&directory, args.max_image_bytes);
    let place = place.map_err(|error| about(&directory, &error))?;
    let answer = match args.answer {
        AnswerKind::Picture => PictureDelivery::Inline,
        AnswerKind::Later => PictureDelivery::Queued(args.wrapper.clone()),
    };
    let eyes = Eyes {
        root: place,
        delivery: answer,
    };
    runtime::block_on(async {
        let shutdown = Shutdown::on_signals(shutdown::TOOL_LIMIT);
        let closing = shutdown.closing.clone();
        serve_eyes(eyes, stdio_pipes(), DEFAULT_LINE_LIMIT, closing)
            .await
            .map_err(io::Error::other)?;
        Ok(shutdown.exit_code())
    })?
}

fn about(directory: &Path, error: &io::Error) -> io::Error {
    let directory = directory.display();
    io::Error::other(format!(
        "--root {directory}: {error}; name a directory that is there"
    ))
}
