use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::logic::picture::BadPictureReason;

const ID: &str = "0199a213-81c0-7800-8aa1-bbab2a035a53";

const SECOND: Duration = Duration::from_secs(1);

fn path(text: &str) -> PicturePath {
    text.parse().unwrap()
}

fn asked(number: u64) -> Input {
    Input::Requested(RequestNumber(number), path(&format!("{number}.png")))
}

fn gone() -> BadPicture {
    BadPicture {
        path: path("1.png"),
        why: BadPictureReason::Missing {
            directory: "/w".to_owned(),
        },
    }
}

fn shown(paths: &[PicturePath]) -> String {
    let paths: Vec<&str> = paths.iter().map(PicturePath::as_str).collect();
    paths.join(" ")
}

fn described(effect: Option<Effect>) -> String {
    match effect {
        None => "-".to_owned(),
        Some(Effect::TerminateCodex) => "end Codex".to_owned(),
        Some(Effect::CheckPictures(requested)) => format!("look at {}", shown(&requested.pictures)),
        Some(Effect::StartCodex(resume)) => {
            let session = match resume.session {
                Session::Named(_) => "by its name",
                Session::Last => "the last one",
            };
            let pictures = match resume.pictures.as_slice() {
                [] => "no picture".to_owned(),
                pictures => shown(pictures),
            };
            let words: String = resume.words.chars().take(24).collect();
            format!("resume {session}, {pictures}, {words:?}")
        }
        Some(Effect::ShutDown(shutdown)) => match shutdown.error {
            None => format!("leave: {}", shutdown.code),
            Some(error) => format!("leave: {}, {error}", shutdown.code),
        },
    }
}

/// Applies inputs, a second each; the time when it is wanted.
fn after(inputs: &[Input]) -> (Machine, Duration) {
    let (mut machine, mut at) = (Machine::default(), Duration::ZERO);
    for input in inputs {
        at = match (input, machine.deadline()) {
            (Input::DeadlineReached, Some(deadline)) => deadline,
            _ => at + SECOND,
        };
        machine.apply(input.clone(), at);
    }
    (machine, at)
}

fn states() -> Vec<(&'static str, Vec<Input>)> {
    let need = vec![asked(1)];
    let waiting = [
        need.clone(),
        vec![Input::ScreenObserved(ScreenState::Waiting)],
    ]
    .concat();
    let restarting = [waiting.clone(), vec![Input::DeadlineReached]].concat();
    let resuming = [restarting.clone(), vec![Input::CodexExited(Exit::Code(0))]].concat();
    let starting = [resuming.clone(), vec![Input::PicturesChecked(Vec::new())]].concat();
    let described = Input::Signalled(Signal::Terminate);
    let starting_told = [starting.clone(), vec![described.clone()]].concat();
    let again = [starting.clone(), vec![Input::CodexStarted]].concat();
    vec![
        ("running", vec![]),
        ("need image", need),
        ("need image, and Codex waits", waiting),
        ("restarting", restarting),
        ("resuming", resuming),
        ("starting", starting),
        ("starting, and told to end", starting_told),
        ("running again", again),
        ("leaving", vec![described]),
        ("over", vec![Input::CodexExited(Exit::Code(0))]),
    ]
}

#[test]
fn every_input_is_handled_in_every_state() {
    let inputs = [
        ("asked for a picture", asked(2)),
        ("asked for an old one", asked(1)),
        ("Codex waits", Input::ScreenObserved(ScreenState::Waiting)),
        ("Codex doesn't", Input::ScreenObserved(ScreenState::Other)),
        (
            "named",
            Input::ThreadIdentified(ThreadId::parse(ID).unwrap()),
        ),
        ("exited: 3", Input::CodexExited(Exit::Code(3))),
        ("exited by signal 9", Input::CodexExited(Exit::Signal(9))),
        ("told: SIGINT", Input::Signalled(Signal::Interrupt)),
        ("told: SIGTERM", Input::Signalled(Signal::Terminate)),
        ("told: SIGHUP", Input::Signalled(Signal::HangUp)),
        ("told: SIGQUIT", Input::Signalled(Signal::Quit)),
        ("picture is fine", Input::PicturesChecked(Vec::new())),
        ("picture has gone", Input::PicturesChecked(vec![gone()])),
        ("started", Input::CodexStarted),
        ("not started", Input::StartFailed("no memory".to_owned())),
    ];
    let mut table = String::new();
    for (name, before) in states() {
        let (machine, at) = after(&before);
        let wants = machine.deadline().map(|deadline| deadline - at);
        writeln!(table, "{name}; wants the time in {wants:?}").unwrap();
        for (name, input) in &inputs {
            row(&mut table, name, &machine, input, at);
        }
        let late = machine.deadline().unwrap_or(at + SECOND);
        row(
            &mut table,
            "time, too early",
            &machine,
            &Input::DeadlineReached,
            at,
        );
        row(&mut table, "time", &machine, &Input::DeadlineReached, late);
    }
    insta::assert_snapshot!(table);
}

fn row(table: &mut String, name: &str, before: &Machine, input: &Input, at: Duration) {
    let mut machine = before.clone();
    let effect = described(machine.apply(input.clone(), at));
    let state = format!("{:?}", machine.state);
    let end = state.find(['(', '{']).unwrap_or(state.len());
    let next = match machine.state == before.state {
        true => "",
        false => state[..end].trim(),
    };
    writeln!(table, "  {name:<22} {next:<11} {effect}").unwrap();
}

#[test]
fn request_leads_to_a_resume_with_the_picture() {
    let (mut machine, at) = after(&[
        Input::ThreadIdentified(ThreadId::parse(ID).unwrap()),
        asked(1),
    ]);
    assert_eq!(machine.deadline(), None);
    machine.apply(Input::ScreenObserved(ScreenState::Waiting), at);
    assert_eq!(machine.deadline(), Some(at + QUIET));
    let at = at + QUIET;
    let steps = [
        (Input::DeadlineReached, "end Codex"),
        (Input::CodexExited(Exit::Signal(15)), "look at ./1.png"),
        (
            Input::PicturesChecked(Vec::new()),
            "resume by its name, ./1.png, \"Requested image attached\"",
        ),
        (Input::CodexStarted, "-"),
        (Input::CodexExited(Exit::Code(7)), "leave: 7"),
    ];
    for (input, expected) in steps {
        assert_eq!(described(machine.apply(input, at)), expected);
    }
    assert_eq!(machine.answered(), Some(RequestNumber(1)));
}

#[test]
fn marker_seen_only_briefly_does_not_restart_codex() {
    let (mut machine, mut at) = after(&[asked(1)]);
    for _ in 0..10 {
        machine.apply(Input::ScreenObserved(ScreenState::Waiting), at);
        let nearly = at + QUIET - Duration::from_millis(1);
        assert_eq!(machine.apply(Input::DeadlineReached, nearly), None);
        machine.apply(Input::ScreenObserved(ScreenState::Other), nearly);
        at += QUIET;
        assert_eq!(machine.apply(Input::DeadlineReached, at), None);
    }
}

#[test]
fn marker_shown_before_the_request_needs_the_full_quiet_time() {
    let (mut machine, at) = after(&[Input::ScreenObserved(ScreenState::Waiting), asked(1)]);
    assert_eq!(machine.apply(Input::DeadlineReached, at), None);
    assert_eq!(machine.deadline(), Some(at + QUIET));
    // The same request, told again, changes nothing.
    machine.apply(asked(1), at + QUIET / 2);
    assert_eq!(machine.deadline(), Some(at + QUIET));
}

#[test]
fn all_open_requests_are_answered_together() {
    let waits = Input::ScreenObserved(ScreenState::Waiting);
    let before = [
        asked(1),
        asked(3),
        asked(2),
        asked(3),
        waits,
        Input::DeadlineReached,
    ];
    let (mut machine, at) = after(&before);
    let effect = machine.apply(Input::CodexExited(Exit::Code(0)), at);
    assert_eq!(described(effect), "look at ./1.png ./3.png");
    // And one that comes while the old Codex still ends.
    let (mut machine, at) = after(&before);
    machine.apply(asked(4), at);
    assert_eq!(machine.answered(), Some(RequestNumber(4)));
    let effect = machine.apply(Input::CodexExited(Exit::Code(0)), at);
    assert_eq!(described(effect), "look at ./1.png ./3.png ./4.png");
    let Some(Effect::StartCodex(resume)) = machine.apply(Input::PicturesChecked(vec![gone()]), at)
    else {
        panic!("{machine:?}");
    };
    assert_eq!(shown(&resume.pictures), "./3.png ./4.png");
    for words in [
        "Requested image attached: ./3.png, ./4.png, in this order.",
        "./1.png could not be attached",
    ] {
        assert!(resume.words.contains(words), "{}", resume.words);
    }
}

#[test]
fn requests_over_the_limit_are_left_out_and_named() {
    let mut inputs: Vec<Input> = (1..=10).map(asked).collect();
    inputs.extend([
        Input::ScreenObserved(ScreenState::Waiting),
        Input::DeadlineReached,
        Input::CodexExited(Exit::Code(0)),
    ]);
    let (mut machine, at) = after(&inputs);
    let Some(Effect::StartCodex(resume)) = machine.apply(Input::PicturesChecked(Vec::new()), at)
    else {
        panic!("{machine:?}");
    };
    assert_eq!(resume.pictures.len(), 8);
    let words = "were left out: ./9.png, ./10.png.";
    assert!(resume.words.contains(words), "{}", resume.words);
}

#[test]
fn old_conversation_after_a_resume_does_not_restart_codex() {
    let (_, mut before) = states().swap_remove(7);
    before.extend([
        Input::ScreenObserved(ScreenState::Waiting),
        asked(1),
        Input::DeadlineReached,
    ]);
    let (mut machine, at) = after(&before);
    assert_eq!(machine.deadline(), None);
    assert_eq!(machine.apply(Input::DeadlineReached, at + 9 * SECOND), None);
    assert_eq!(machine.state, State::Running);
}

/// Which restart of a Codex that asks for a picture every so often is one without it.
fn refused(machine: Machine, every: Duration, count: u64) -> Vec<u64> {
    let (mut machine, mut at) = (machine, Duration::ZERO);
    let mut refused = Vec::new();
    for number in 1..=count {
        at += every;
        machine.apply(asked(number), at);
        machine.apply(Input::ScreenObserved(ScreenState::Waiting), at);
        if machine.apply(Input::DeadlineReached, at + QUIET).is_none() {
            assert_eq!(machine.state, State::Running, "{number} is passed over");
            continue;
        }
        let effect = machine.apply(Input::CodexExited(Exit::Code(0)), at + QUIET);
        if let Some(Effect::StartCodex(resume)) = effect {
            assert_eq!(resume.pictures, []);
            let picture = format!("./{number}.png");
            assert!(resume.words.contains(&picture), "{}", resume.words);
            let notice = resume.notice.unwrap();
            assert!(notice.contains(&picture), "{notice}");
            refused.push(number);
        } else {
            machine.apply(Input::PicturesChecked(Vec::new()), at + QUIET);
        }
        machine.apply(Input::CodexStarted, at + QUIET);
    }
    refused
}

#[test]
fn restarts_over_the_limit_are_refused_once_in_five_minutes() {
    let machine = Machine::default;
    assert_eq!(refused(machine(), SECOND, 9), [6]);
    let nearly = Duration::from_millis(59_900);
    assert_eq!(refused(machine(), nearly, 9), [6]);
    assert!(refused(machine(), Duration::from_secs(60), 40).is_empty());
    assert_eq!(refused(machine(), SECOND, 310), [6, 306]);
    let machine = machine().with_most_restarts(2);
    assert_eq!(refused(machine, SECOND, 9), [3]);
}

/// What the shell and Codex do in a run that is made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Ask,
    Wait,
    Draw,
    Go,
    Tell(Signal),
    Answer(bool),
    Pass(u64),
}

/// The machine in a world where only that happens which can.
struct World {
    machine: Machine,
    at: Duration,
    number: u64,
    codexes: u32,
    checks: u32,
    starting: u32,
    starts: Vec<Duration>,
    left: Option<Shutdown>,
}

impl World {
    fn new() -> Self {
        Self {
            machine: Machine::default(),
            at: Duration::ZERO,
            number: 0,
            codexes: 1,
            checks: 0,
            starting: 0,
            starts: Vec::new(),
            left: None,
        }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let input = match step {
            Step::Ask => {
                self.number += 1;
                asked(self.number)
            }
            Step::Wait => Input::ScreenObserved(ScreenState::Waiting),
            Step::Draw => Input::ScreenObserved(ScreenState::Other),
            Step::Go if self.codexes > 0 => {
                self.codexes -= 1;
                Input::CodexExited(Exit::Code(0))
            }
            Step::Tell(signal) => Input::Signalled(signal),
            Step::Answer(fine) if self.checks > 0 => {
                self.checks -= 1;
                Input::PicturesChecked(if fine { Vec::new() } else { vec![gone()] })
            }
            Step::Answer(fine) if self.starting > 0 => {
                self.starting -= 1;
                self.codexes += u32::from(fine);
                match fine {
                    true => Input::CodexStarted,
                    false => Input::StartFailed(String::new()),
                }
            }
            Step::Pass(millis) => return self.pass(Duration::from_millis(millis)),
            Step::Go | Step::Answer(_) => return Ok(()),
        };
        self.apply(input)
    }

    /// Lets time pass, with every deadline on the way.
    fn pass(&mut self, time: Duration) -> Result<(), TestCaseError> {
        let end = self.at + time;
        while let Some(deadline) = self.machine.deadline().filter(|deadline| *deadline <= end) {
            self.at = self.at.max(deadline);
            self.apply(Input::DeadlineReached)?;
            prop_assert_ne!(self.machine.deadline(), Some(deadline));
        }
        self.at = end;
        Ok(())
    }

    fn apply(&mut self, input: Input) -> Result<(), TestCaseError> {
        let Some(effect) = self.machine.apply(input, self.at) else {
            return Ok(());
        };
        prop_assert!(self.left.is_none(), "{effect:?} after the end");
        match effect {
            Effect::TerminateCodex => prop_assert_eq!(self.codexes, 1),
            Effect::CheckPictures(_) => {
                prop_assert_eq!(self.codexes, 0);
                self.checks += 1;
            }
            Effect::StartCodex(_) => {
                prop_assert_eq!((self.codexes, self.starting), (0, 0));
                self.starting += 1;
                self.starts.push(self.at);
                // One more than those with pictures: the one that says that it was too often.
                let recent = self.starts.iter().rev().nth(MOST_RESTARTS + 1);
                let enough = |start: &Duration| self.at - *start >= RESTARTS_WITHIN;
                prop_assert!(recent.is_none_or(enough), "{:?}", self.starts);
                prop_assert!(self.starts.len() <= usize::try_from(self.number).unwrap());
            }
            Effect::ShutDown(shutdown) => {
                let still_there = self.codexes > 0 && shutdown.error.is_some();
                prop_assert!(still_there || self.codexes == 0);
                self.left = Some(shutdown);
            }
        }
        Ok(())
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Ask),
        4 => Just(Step::Wait),
        1 => Just(Step::Draw),
        4 => Just(Step::Go),
        8 => any::<bool>().prop_map(Step::Answer),
        1 => Just(Step::Tell(Signal::Interrupt)),
        8 => (0_u64..4000).prop_map(Step::Pass),
        1 => (0_u64..400_000).prop_map(Step::Pass),
    ]
}

/// Steps of a Codex that wants pictures and nothing else.
fn greedy() -> impl Strategy<Value = Vec<Step>> {
    (0_u64..100_000).prop_map(|pause| {
        vec![
            Step::Pass(pause),
            Step::Ask,
            Step::Wait,
            Step::Pass(500),
            Step::Go,
            Step::Answer(true),
            Step::Answer(true),
        ]
    })
}

proptest! {
    /// Never two Codexes, never more than 6 restarts in any 5 minutes, nothing after the
    /// end; and whoever is told to end ends, whatever Codex does about it.
    #[test]
    fn machine_keeps_its_invariants_whatever_happens(
        steps in proptest::collection::vec(step(), 0..200),
        pictures in proptest::collection::vec(greedy(), 0..15),
    ) {
        for steps in [steps, pictures.concat()] {
            let mut world = World::new();
            for step in steps {
                world.step(step)?;
            }
            world.step(Step::Tell(Signal::Terminate))?;
            world.step(Step::Answer(true))?;
            world.pass(END)?;
            prop_assert!(world.left.is_some(), "{:?}", world.machine);
        }
    }
}
