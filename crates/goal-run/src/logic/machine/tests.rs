use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// What Codex did in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnWork {
    Words,
    Denied,
    DeniedUnseen,
    Failed,
    FailedCall,
    Executed,
}

const DID: [TurnWork; 6] = [
    TurnWork::Words,
    TurnWork::Denied,
    TurnWork::DeniedUnseen,
    TurnWork::Failed,
    TurnWork::FailedCall,
    TurnWork::Executed,
];

const ENDS: [TurnEnd; 9] = [
    TurnEnd::Completed,
    TurnEnd::TimedOut,
    TurnEnd::Interrupted,
    TurnEnd::Died,
    TurnEnd::StaleSession,
    TurnEnd::Failed(FailureClass::Connection),
    TurnEnd::Failed(FailureClass::ContextWindow),
    TurnEnd::Failed(FailureClass::RateLimit),
    TurnEnd::Failed(FailureClass::UnknownSession),
];

const STANDINGS: [VerdictStatus; 3] = [
    VerdictStatus::Satisfied,
    VerdictStatus::Incomplete,
    VerdictStatus::Unknown,
];

const GAINS: [Gain; 2] = [Gain::Something, Gain::Nothing];

fn report(end: TurnEnd, work: TurnWork, status: VerdictStatus, gain: Gain) -> TurnReport {
    let mut evidence = Evidence::default();
    match work {
        TurnWork::Words | TurnWork::DeniedUnseen => {}
        TurnWork::Denied => {
            evidence.commands = 1;
            evidence.declined = 1;
        }
        TurnWork::FailedCall => {
            evidence.tool_calls = 1;
            evidence.failed_calls = 1;
        }
        TurnWork::Failed | TurnWork::Executed => evidence.commands = 1,
    }
    TurnReport {
        end,
        evidence,
        denied: u64::from(work == TurnWork::DeniedUnseen),
        failed: u64::from(matches!(work, TurnWork::Failed | TurnWork::FailedCall)),
        status,
        gain,
        answer: AnswerNovelty::New,
        write_access: WriteAccess::Possible,
        tokens: 0,
    }
}

fn completed(work: TurnWork, gain: Gain) -> TurnReport {
    report(TurnEnd::Completed, work, VerdictStatus::Incomplete, gain)
}

fn described(next: Option<NextStep>) -> String {
    match next {
        None => "-".to_owned(),
        Some(NextStep::Interrupt) => "interrupt".to_owned(),
        Some(NextStep::End(end)) => format!("end: {end:?}"),
        Some(NextStep::Prompt(prompt)) => match prompt.conversation {
            Conversation::Same => prompt.kind.to_string(),
            Conversation::New => format!("{}, new conversation", prompt.kind),
        },
    }
}

fn step(run: &mut Run, report: TurnReport) -> String {
    described(run.step(&report, SECOND))
}

/// What follows after the first turn, after the second and third such turn, and if there are no
/// more turns, for everything that can come of it.
#[test]
fn next_step_follows_every_kind_of_turn() {
    let mut table = String::new();
    for status in STANDINGS {
        for end in ENDS {
            table += &format!("{status:?}, {end:?}\n");
            let mut rows: Vec<(String, String)> = Vec::new();
            for gain in GAINS {
                for work in DID {
                    let name = format!("{gain:?}, {work:?}");
                    rows.push((name, what_follows(report(end, work, status, gain))));
                }
            }
            if rows.iter().all(|(_, follows)| *follows == rows[0].1) {
                rows.truncate(1);
                rows[0].0 = "whatever it did".to_owned();
            }
            for (name, follows) in rows {
                table += &format!("  {name:<24} {follows}\n");
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn command_may_take_as_long_as_a_turn_or_five_minutes() {
    let command = |turn: u32| {
        let limits = Limits::new(1, turn * SECOND, TOTAL_LIMIT).unwrap();
        limits.command()
    };
    assert_eq!(command(120), 300 * SECOND);
    assert_eq!(command(420), 420 * SECOND);
}

fn what_follows(report: TurnReport) -> String {
    let (mut run, _) = Run::start(Limits::default());
    let once = step(&mut run, report);
    let twice = step(&mut run, report);
    let thrice = step(&mut run, report);
    let last = last_turn(report);
    format!("{once} | {twice} | {thrice} | {last}")
}

fn last_turn(report: TurnReport) -> String {
    let limits = Limits::new(1, TURN_LIMIT, TOTAL_LIMIT).unwrap();
    let (mut run, _) = Run::start(limits);
    step(&mut run, report)
}

/// Each state and what can happen in it, apart from how turns end.
#[test]
fn every_event_is_handled_in_every_state() {
    type Way = fn(&mut Run) -> Option<NextStep>;
    let ways: [(&str, Way); 4] = [
        ("working", |_| None),
        ("interrupting, too late", |run| run.tick(TURN_LIMIT)),
        ("interrupting, stopped", Run::stop),
        ("over", |run| {
            run.step(
                &report(
                    TurnEnd::Completed,
                    TurnWork::Executed,
                    VerdictStatus::Satisfied,
                    Gain::Something,
                ),
                SECOND,
            )
        }),
    ];
    let lacking = completed(TurnWork::Executed, Gain::Something);
    let satisfied = TurnReport {
        status: VerdictStatus::Satisfied,
        ..lacking
    };
    let mut table = String::new();
    for (state, way) in ways {
        let in_state = || {
            let (mut run, _) = Run::start(Limits::default());
            way(&mut run);
            run
        };
        let events = BTreeMap::from([
            ("tick, in time", in_state().tick(TURN_LIMIT - SECOND)),
            ("tick, too late", in_state().tick(TURN_LIMIT)),
            ("stop", in_state().stop()),
            ("turn ends, lacking", in_state().step(&lacking, TURN_LIMIT)),
            (
                "turn ends, satisfied",
                in_state().step(&satisfied, TURN_LIMIT),
            ),
            (
                "turn ends at the end of time",
                in_state().step(&lacking, TOTAL_LIMIT),
            ),
            (
                "turn ends then, satisfied",
                in_state().step(&satisfied, TOTAL_LIMIT),
            ),
        ]);
        table += &format!("{state}; wants the time: {:?}\n", in_state().deadline());
        for (event, next) in events {
            table += &format!("  {event:<30} {}\n", described(next));
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn promise_is_nudged_and_work_satisfies() {
    let (mut run, first) = Run::start(Limits::default());
    assert_eq!(
        (first.kind, first.turn, first.until),
        (PromptKind::Initial, 1, TURN_LIMIT)
    );
    assert_eq!(
        step(&mut run, completed(TurnWork::Words, Gain::Nothing)),
        "nudge"
    );
    let done = report(
        TurnEnd::Completed,
        TurnWork::Executed,
        VerdictStatus::Satisfied,
        Gain::Something,
    );
    assert_eq!(step(&mut run, done), "end: Satisfied");
    assert_eq!(run.turns(), 2);
}

#[test]
fn words_only_are_nudged_up_to_the_last_turn() {
    let limits = Limits::default().stalling_after(MOST_TURNS).unwrap();
    let (mut run, _) = Run::start(limits);
    for _ in 1..MAX_TURNS {
        assert_eq!(
            step(&mut run, completed(TurnWork::Words, Gain::Nothing)),
            "nudge"
        );
    }
    assert_eq!(
        step(&mut run, completed(TurnWork::Words, Gain::Nothing)),
        "end: MaxTurns"
    );
    assert_eq!(run.turns(), MAX_TURNS);
}

#[test]
fn only_idle_turns_in_a_row_are_a_stall() {
    let (mut run, _) = Run::start(Limits::default());
    let words = completed(TurnWork::Words, Gain::Nothing);
    let repeated = TurnReport {
        answer: AnswerNovelty::Repeated,
        ..completed(TurnWork::Executed, Gain::Nothing)
    };
    let cut = report(
        TurnEnd::TimedOut,
        TurnWork::Executed,
        VerdictStatus::Incomplete,
        Gain::Nothing,
    );
    for between in [
        cut,
        completed(TurnWork::Executed, Gain::Nothing),
        completed(TurnWork::Words, Gain::Something),
    ] {
        for idle in [words, repeated] {
            assert_ne!(step(&mut run, idle), "end: Stalled");
        }
        assert_ne!(step(&mut run, between), "end: Stalled");
    }
    let (mut run, _) = Run::start(Limits::default());
    step(&mut run, words);
    step(&mut run, repeated);
    let denied = completed(TurnWork::DeniedUnseen, Gain::Nothing);
    assert_eq!(step(&mut run, denied), "end: Stalled");
}

/// Reading takes time, and brings nothing new.
#[test]
fn turns_of_work_without_a_gain_do_not_stall() {
    for end in [TurnEnd::Completed, TurnEnd::TimedOut] {
        let limits = Limits::default().stalling_after(1).unwrap();
        let (mut run, _) = Run::start(limits);
        let reads = report(
            end,
            TurnWork::Executed,
            VerdictStatus::Incomplete,
            Gain::Nothing,
        );
        for _ in 1..MAX_TURNS {
            assert_ne!(step(&mut run, reads), "end: Stalled");
        }
        assert_eq!(step(&mut run, reads), "end: MaxTurns");
    }
}

#[test]
fn turn_without_write_access_ends_the_run_unless_something_is_new() {
    let (mut run, _) = Run::start(Limits::default());
    let refused = |gain| TurnReport {
        write_access: WriteAccess::Refused,
        ..completed(TurnWork::Failed, gain)
    };
    // Somebody else has changed something.
    assert_eq!(step(&mut run, refused(Gain::Something)), "continuation");
    assert_eq!(step(&mut run, refused(Gain::Nothing)), "end: ReadOnly");
    let (mut run, _) = Run::start(Limits::default());
    let satisfied = TurnReport {
        status: VerdictStatus::Satisfied,
        ..refused(Gain::Nothing)
    };
    assert_eq!(step(&mut run, satisfied), "end: Satisfied");
}

#[test]
fn used_up_tokens_interrupt_the_turn_and_end_the_run() {
    let limits = Limits::default().within_tokens(Some(1000)).unwrap();
    let (mut run, _) = Run::start(limits);
    assert_eq!(run.tokens_used(999), None);
    let used = |tokens| TurnReport {
        tokens,
        ..completed(TurnWork::Executed, Gain::Something)
    };
    assert_eq!(step(&mut run, used(999)), "continuation");
    assert_eq!(run.tokens_used(1000), Some(NextStep::Interrupt));
    assert_eq!(run.tokens_used(1001), None);
    let cut = TurnReport {
        end: TurnEnd::Interrupted,
        ..used(1001)
    };
    assert_eq!(step(&mut run, cut), "end: MaxTokens");
    // What holds in the end counts all the same.
    let (mut run, _) = Run::start(limits);
    let satisfied = TurnReport {
        status: VerdictStatus::Satisfied,
        ..used(2000)
    };
    assert_eq!(step(&mut run, satisfied), "end: Satisfied");
    assert_eq!(limits.within_tokens(Some(0)), Err(BadLimits::Tokens));
    let read = serde_json::from_str::<Limits>(r#"{"max_tokens":1000}"#);
    assert_eq!(read.unwrap(), limits);
}

#[test]
fn stall_after_is_set_by_its_limit() {
    let limits = Limits::default().stalling_after(1).unwrap();
    let (mut run, _) = Run::start(limits);
    let words = completed(TurnWork::Words, Gain::Nothing);
    assert_eq!(step(&mut run, words), "end: Stalled");
    assert_eq!(limits.stalling_after(0), Err(BadLimits::Stall(0)));
    assert_eq!(limits.stalling_after(101), Err(BadLimits::Stall(101)));
    let read = serde_json::from_str::<Limits>(r#"{"stall_after":1}"#);
    assert_eq!(read.unwrap(), limits);
}

#[test]
fn hanging_turn_is_interrupted_and_followed_by_recovery() {
    let (mut run, _) = Run::start(Limits::default());
    assert_eq!(run.tick(TURN_LIMIT - SECOND), None);
    assert_eq!(run.tick(TURN_LIMIT), Some(NextStep::Interrupt));
    assert_eq!(run.tick(TURN_LIMIT + SECOND), None);
    let hung = report(
        TurnEnd::Interrupted,
        TurnWork::Words,
        VerdictStatus::Incomplete,
        Gain::Nothing,
    );
    let next = run.step(&hung, TURN_LIMIT + SECOND);
    assert_eq!(described(next), "recovery");
    assert_eq!(run.deadline(), Some(TURN_LIMIT * 2 + SECOND));
}

#[test]
fn last_turn_ends_at_the_total_limit() {
    let limits = Limits::new(10, SECOND * 60, SECOND * 100).unwrap();
    let (mut run, _) = Run::start(limits);
    let next = run.step(&completed(TurnWork::Words, Gain::Nothing), SECOND * 50);
    let Some(NextStep::Prompt(prompt)) = next else {
        panic!("{next:?}");
    };
    assert_eq!(prompt.until, SECOND * 100);
    assert_eq!(run.tick(SECOND * 100), Some(NextStep::Interrupt));
    let cut = report(
        TurnEnd::Interrupted,
        TurnWork::Executed,
        VerdictStatus::Incomplete,
        Gain::Something,
    );
    assert_eq!(described(run.step(&cut, SECOND * 101)), "end: TotalTime");
}

#[test]
fn stale_conversation_is_replaced_once_and_counts_as_no_turn() {
    let limits = Limits::new(1, TURN_LIMIT, TOTAL_LIMIT).unwrap();
    let (mut run, _) = Run::start(limits);
    let stale = report(
        TurnEnd::StaleSession,
        TurnWork::Words,
        VerdictStatus::Incomplete,
        Gain::Nothing,
    );
    assert_eq!(step(&mut run, stale), "initial, new conversation");
    assert_eq!(run.turns(), 1);
    assert_eq!(step(&mut run, stale), "end: CouldNotRun(UnknownSession)");
}

#[test]
fn repeated_failures_without_an_attempt_end_the_run() {
    let (mut run, _) = Run::start(Limits::default());
    let died = report(
        TurnEnd::Died,
        TurnWork::Words,
        VerdictStatus::Incomplete,
        Gain::Nothing,
    );
    assert_eq!(step(&mut run, died), "recovery");
    assert_eq!(step(&mut run, died), "recovery");
    assert_eq!(step(&mut run, died), "end: CouldNotRun(Signal)");
}

#[test]
fn limits_out_of_range_are_refused() {
    let limits = |turns, turn, total| Limits::new(turns, SECOND * turn, SECOND * total);
    assert_eq!(limits(MAX_TURNS, 120, 600), Ok(Limits::default()));
    assert_eq!(limits(0, 1, 1), Err(BadLimits::Turns(0)));
    assert_eq!(limits(101, 1, 1), Err(BadLimits::Turns(101)));
    assert_eq!(limits(1, 0, 1), Err(BadLimits::TurnTime(Duration::ZERO)));
    assert_eq!(
        limits(1, 1, 86_401),
        Err(BadLimits::TotalTime(SECOND * 86_401))
    );
}

#[test]
fn limits_are_read_by_their_names() {
    let limits = |text: &str| serde_json::from_str::<Limits>(text);
    assert_eq!(limits("{}").unwrap(), Limits::default());
    let described = limits(r#"{"max_turns":3,"turn_timeout_ms":1000}"#).unwrap();
    assert_eq!(described, Limits::new(3, SECOND, TOTAL_LIMIT).unwrap());
    let written = serde_json::to_string(&described).unwrap();
    assert_eq!(limits(&written).unwrap(), described);
    assert!(limits(r#"{"max_turns":0}"#).is_err());
}

/// What happens to a run, and how long after the last time.
#[derive(Debug, Clone, Copy)]
enum Event {
    Tick,
    Stop,
    Ends(TurnReport),
}

fn reports() -> impl Strategy<Value = TurnReport> {
    // Most turns don't end a run, or the later ones would hardly be tried.
    let status = prop_oneof![
        10 => Just(VerdictStatus::Incomplete),
        1 => Just(VerdictStatus::Unknown),
        1 => Just(VerdictStatus::Satisfied),
    ];
    let end = prop_oneof![
        5 => Just(TurnEnd::Completed),
        3 => proptest::sample::select(ENDS.to_vec()),
    ];
    let work = proptest::sample::select(DID.to_vec());
    let gain = proptest::sample::select(GAINS.to_vec());
    (end, work, status, gain).prop_map(|(end, work, status, gain)| report(end, work, status, gain))
}

fn events() -> impl Strategy<Value = Vec<(Event, u64)>> {
    let event = prop_oneof![
        20 => reports().prop_map(Event::Ends),
        5 => Just(Event::Tick),
        1 => Just(Event::Stop),
    ];
    proptest::collection::vec((event, 0..90_u64), 0..60)
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..12_u32, 1..200_u64, 1..2000_u64).prop_map(|(turns, turn, total)| {
        Limits::new(
            turns,
            SECOND * turn.try_into().unwrap(),
            SECOND * total.try_into().unwrap(),
        )
        .unwrap()
    })
}

/// A run and all that it has wanted.
struct Observed {
    run: Run,
    limits: Limits,
    at: Duration,
    prompts: u32,
    stale: u32,
    renewed: u32,
    interrupts: u32,
    stopped: bool,
    end: Option<RunEnd>,
}

impl Observed {
    fn apply(&mut self, event: Event) -> Result<(), TestCaseError> {
        let next = match event {
            Event::Tick => self.run.tick(self.at),
            Event::Stop => self.run.stop(),
            Event::Ends(report) => self.run.step(&report, self.at),
        };
        prop_assert!(
            self.end.is_none() || next.is_none(),
            "{:?} after the end",
            next
        );
        prop_assert!(!matches!(event, Event::Ends(_)) || self.end.is_some() || next.is_some());
        match next {
            None => {}
            Some(NextStep::Interrupt) => self.interrupted(event)?,
            Some(NextStep::Prompt(prompt)) => self.prompted(prompt, event)?,
            Some(NextStep::End(end)) => self.ended(end, event)?,
        }
        self.stopped |= matches!(event, Event::Stop) && self.end.is_none();
        Ok(())
    }

    /// A turn is interrupted once, and for a reason.
    fn interrupted(&mut self, event: Event) -> Result<(), TestCaseError> {
        self.interrupts += 1;
        prop_assert_eq!(self.interrupts, 1);
        prop_assert!(!matches!(event, Event::Ends(_)));
        Ok(())
    }

    fn prompted(&mut self, prompt: TurnPrompt, event: Event) -> Result<(), TestCaseError> {
        let Event::Ends(report) = event else {
            return Err(TestCaseError::fail("a prompt while a turn runs"));
        };
        self.interrupts = 0;
        self.prompts += 1;
        let unknown = TurnEnd::Failed(FailureClass::UnknownSession);
        self.stale += u32::from([TurnEnd::StaleSession, unknown].contains(&report.end));
        self.renewed += u32::from(prompt.conversation == Conversation::New);
        prop_assert!(!self.stopped);
        prop_assert!(report.status != VerdictStatus::Satisfied);
        prop_assert!(self.renewed <= 1 && self.stale <= 1);
        prop_assert_eq!(prompt.turn, self.prompts - self.stale);
        prop_assert!(prompt.turn <= self.limits.turns);
        prop_assert!(self.at < prompt.until && prompt.until <= self.limits.total);
        prop_assert!(prompt.until <= self.at + self.limits.turn);
        Ok(())
    }

    fn ended(&mut self, end: RunEnd, event: Event) -> Result<(), TestCaseError> {
        let Event::Ends(report) = event else {
            return Err(TestCaseError::fail("an end while a turn runs"));
        };
        let holds = report.status == VerdictStatus::Satisfied;
        prop_assert_eq!(end == RunEnd::Satisfied, holds && !self.stopped);
        prop_assert_eq!(end == RunEnd::Cancelled, self.stopped);
        self.end = Some(end);
        Ok(())
    }
}

proptest! {
    /// There are never more turns than there can be, nor prompts after the end or
    /// after the time; a run ends satisfied exactly if all holds; and once it is
    /// over, it stays so.
    #[test]
    fn run_stays_within_its_limits_whatever_happens(limits in limits(), events in events()) {
        let (run, first) = Run::start(limits);
        prop_assert_eq!((first.kind, first.turn), (PromptKind::Initial, 1));
        let mut observed = Observed {
            run,
            limits,
            at: Duration::ZERO,
            prompts: 1,
            stale: 0,
            renewed: 0,
            interrupts: 0,
            stopped: false,
            end: None,
        };
        for (event, seconds) in events {
            observed.at += Duration::from_secs(seconds);
            observed.apply(event)?;
        }
    }

    /// Every run is over after as many turns as there can be, and one that was stale.
    #[test]
    fn run_ends_within_its_turns(limits in limits(), reports in proptest::collection::vec(reports(), 13)) {
        let (mut run, _) = Run::start(limits);
        let mut ends = 0;
        for report in reports {
            if let Some(NextStep::End(_)) = run.step(&report, Duration::ZERO) {
                ends += 1;
                prop_assert_eq!(run.deadline(), None);
            }
        }
        prop_assert_eq!(ends, 1);
    }
}
