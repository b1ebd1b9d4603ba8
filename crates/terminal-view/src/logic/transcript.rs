//! A conversation as rows.

use common::text::visible_line;
use work_board::logic::conversation::Conversation;
use work_board::logic::step::{PlanStep, Step, StepKind, command_words, gap_words, status_words};

use super::rows::{ASKING, BAD, DIM, GOOD, INPUT, PLAIN, Row, TITLE, gap, push};

/// The numbers of the steps of a conversation, and how many rows are above each of them.
pub(crate) type StepRows = Vec<(u64, usize)>;

/// The steps of a conversation, and Codex's plan below them.
pub(crate) fn rows(conversation: &Conversation) -> (Vec<Row>, StepRows) {
    let (mut rows, mut steps) = (Vec::new(), Vec::new());
    for step in conversation.steps() {
        gap(&mut rows);
        steps.push((step.number, rows.len()));
        push_step(&mut rows, step);
    }
    if !conversation.plan().is_empty() {
        gap(&mut rows);
        push(&mut rows, TITLE, "", "Plan");
        for step in conversation.plan() {
            push_plan_step(&mut rows, step);
        }
    }
    (rows, steps)
}

fn push_step(rows: &mut Vec<Row>, step: &Step) {
    match &step.kind {
        StepKind::Prompt { text } => push(rows, INPUT, "> ", text),
        StepKind::Message { text } => push(rows, PLAIN, "", text),
        StepKind::Thought { text } => push(rows, DIM, "~ ", text),
        StepKind::Command {
            command,
            text,
            status,
            exit_code,
        } => {
            push(rows, INPUT, "$ ", command);
            push_output(rows, text);
            let style = match exit_code {
                Some(0) => GOOD,
                Some(_) => BAD,
                None => DIM,
            };
            push(rows, style, "  ", &command_words(status, *exit_code));
        }
        StepKind::Files { files, status } => {
            push(
                rows,
                TITLE,
                "",
                &format!("Changes of files: {}", status_words(status)),
            );
            for file in files {
                let line = format!("{} {}", file.kind, visible_line(&file.path));
                push(rows, PLAIN, "  ", &line);
            }
        }
        StepKind::Picture { path, .. } => {
            push(rows, TITLE, "", &format!("Picture {}", visible_line(path)));
        }
        StepKind::Other { title, text } => {
            push(rows, TITLE, "", &visible_line(title));
            push_output(rows, text);
        }
        StepKind::Question { title, closed, .. } => {
            let closed = closed.as_deref().unwrap_or("not answered yet");
            push(rows, ASKING, "? ", &visible_line(title));
            push(rows, DIM, "  ", closed);
        }
        StepKind::End { words, failed } => match failed {
            true => push(rows, BAD, "= ", words),
            false => push(rows, DIM, "= ", words),
        },
        StepKind::Gap { count } => {
            push(rows, DIM, "", &gap_words(*count));
        }
    }
}

fn push_output(rows: &mut Vec<Row>, text: &str) {
    if !text.is_empty() {
        push(rows, DIM, "  ", text);
    }
}

fn push_plan_step(rows: &mut Vec<Row>, step: &PlanStep) {
    let (sign, style) = match step.status.as_str() {
        "completed" => ("[x] ", DIM),
        "inProgress" => ("[>] ", PLAIN),
        _ => ("[ ] ", PLAIN),
    };
    push(rows, style, sign, &visible_line(&step.step));
}
