use std::time::UNIX_EPOCH;

use super::*;
use crate::cli::work_list::ASKING;

fn state() -> State {
    State {
        version: "0.1.0 (1d66ea9b, npm)".to_owned(),
        codex: found(LoginState::Usable("Logged in using ChatGPT".to_owned())),
        clients: None,
        work: known(Vec::new()),
    }
}

fn found(login: LoginState) -> CodexState {
    CodexState::Found {
        version: "0.169.0".to_owned(),
        path: "/usr/bin/codex".to_owned(),
        login,
    }
}

fn work(kind: Kind, id: &str, state: &str) -> Work {
    Work {
        id: id.to_owned(),
        kind,
        state: state.to_owned(),
        created_at: UNIX_EPOCH,
        task: None,
        doing: None,
        tokens: None,
        cost: None,
        directory: None,
        thread_id: None,
    }
}

fn several() -> Vec<Work> {
    vec![
        work(Kind::Session, "sess_0123456789ab", "running"),
        work(Kind::Session, "sess_1123456789ab", "idle"),
        work(Kind::Job, "3d9a54a9-0000-4000-8000-000000000000", "queued"),
        work(Kind::Run, "4d9a54a9-0000-4000-8000-000000000000", "running"),
    ]
}

fn known(work: Vec<Work>) -> WorkState {
    WorkState::Known { work, more_jobs: 0 }
}

fn asking(mut work: Vec<Work>, which: &[usize]) -> WorkState {
    for index in which {
        work[*index].state = ASKING.to_owned();
    }
    known(work)
}

fn text(state: &State, room: Option<usize>) -> String {
    let lines = in_lines(state);
    let lines = lines.iter().map(|line| {
        let width = if line.label.is_empty() { 0 } else { 9 };
        let room = room.map(|room| room - width);
        format!("{:width$}{}", line.label, line.within(room))
    });
    lines
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

#[test]
fn fresh_machine_is_told_to_install_codex() {
    let state = State {
        codex: CodexState::NotInstalled,
        ..state()
    };
    insta::assert_snapshot!(text(&state, Some(80)));
}

#[test]
fn busy_machine_shows_clients_and_work() {
    let state = State {
        clients: Some(vec!["Claude Code", "Cursor"]),
        work: asking(several(), &[0]),
        ..state()
    };
    insta::assert_snapshot!(text(&state, Some(80)));
}

#[test]
fn jobs_that_are_not_listed_are_counted() {
    let work = WorkState::Known {
        work: several(),
        more_jobs: 300,
    };
    let line = work_line(&work);
    assert_eq!(line.text, "2 sessions, 1 run, 1 job, 300 more jobs or runs");
}

#[test]
fn next_command_fits_the_state() {
    let clients = |names: &[&'static str]| Some(names.to_vec());
    let missing = found(LoginState::Missing("codex login".to_owned()));
    let unclear = found(LoginState::Unclear("KEY is not set".to_owned()));
    let unusable = CodexState::Unusable("/bin/true is not Codex".to_owned());
    let busy = known(several());
    let cases = [
        (state(), "codex-mcp demo"),
        (
            State {
                codex: CodexState::NotInstalled,
                ..state()
            },
            INSTALL,
        ),
        (
            State {
                codex: unusable,
                ..state()
            },
            "codex-mcp doctor",
        ),
        (
            State {
                codex: missing,
                clients: clients(&[]),
                ..state()
            },
            "codex login",
        ),
        (
            State {
                codex: unclear,
                work: busy.clone(),
                ..state()
            },
            "codex-mcp doctor",
        ),
        (
            State {
                clients: clients(&[]),
                work: busy.clone(),
                ..state()
            },
            "codex-mcp setup",
        ),
        (
            State {
                work: busy,
                ..state()
            },
            "codex-mcp ps",
        ),
        (
            State {
                clients: clients(&["Zed"]),
                ..state()
            },
            "codex-mcp jobs submit --wait \"Explain this repository\"",
        ),
        (
            State {
                work: WorkState::Unknown("no answer".to_owned()),
                ..state()
            },
            "codex-mcp demo",
        ),
        (
            State {
                codex: CodexState::NotInstalled,
                work: asking(several(), &[2]),
                ..state()
            },
            "codex-mcp jobs show 3d9a54a9",
        ),
        (
            State {
                work: asking(several(), &[0]),
                ..state()
            },
            "codex-mcp logs sess_01234567",
        ),
        (
            State {
                work: asking(several(), &[0, 3]),
                ..state()
            },
            "codex-mcp ps",
        ),
    ];
    for (state, command) in cases {
        assert_eq!(next(&state).command, command, "{state:?}");
    }
}

#[test]
fn every_state_fits_a_small_terminal() {
    let long = "a reason ".repeat(100);
    let codexes = [
        CodexState::NotInstalled,
        CodexState::Unusable(long.clone()),
        found(LoginState::Usable("Logged in".to_owned())),
        found(LoginState::Missing("codex login".to_owned())),
        found(LoginState::Unclear(long.clone())),
    ];
    let works = [
        known(Vec::new()),
        WorkState::Unknown(long.clone()),
        asking(several(), &[0, 1]),
    ];
    for codex in &codexes {
        for work in &works {
            let state = State {
                codex: codex.clone(),
                clients: Some(vec!["A client"; 20]),
                work: work.clone(),
                ..state()
            };
            let text = text(&state, Some(80));
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines.len() <= 15, "{text}");
            assert!(
                lines.iter().all(|line| line.chars().count() <= 80),
                "{text}"
            );
        }
    }
}

#[test]
fn text_on_a_pipe_is_whole() {
    let state = State {
        codex: CodexState::Unusable("why ".repeat(50)),
        ..state()
    };
    assert!(text(&state, None).contains(&"why ".repeat(50).trim_end().to_owned()));
}
