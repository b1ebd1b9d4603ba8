//! Answers by mail: which reply decides which question.
//!
//! Each recipient of the notice of a question gets an [`AnswerCode`] of its own. A reply decides
//! only if its first line is one of the decisions and the code, and if it comes from the recipient
//! that the code was made for. Everything else is ordinary mail.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use agent_team::logic::inbox::FirstLine;
use agent_team::logic::{Address, AgentName, TeamName};
use codex_engine::logic::action::{ActionKind, Decision, choices, leaves_the_sandbox};
use codex_engine::logic::approval_text;
use codex_protocol::codex::Ask;
use common::secrets::mask;

use super::notifier::Notifier;

/// How long a reply to a closed question is still answered.
const LATE: Duration = Duration::from_secs(60);

/// How many replies of a recipient may be wrong or refused.
const TRIES: u8 = 3;

/// The characters of a code: digits and letters without those that look alike (i, l, o, u).
const ALPHABET: &str = "0123456789abcdefghjkmnpqrstvwxyz";

/// The number of groups of a code, and of the characters in each. The first group only tells codes
/// apart; the others are 60 random bits.
const GROUPS: usize = 4;
const GROUP: usize = 4;

/// A secret that shows that a reply comes from a reader of the notice, such as
/// `7h2k-9qfx-m3tw-c8ra`.
#[derive(Clone, PartialEq, Eq)]
pub struct AnswerCode(String);

impl AnswerCode {
    /// The code of these random bits, of which it has 80.
    #[must_use]
    pub fn from_random(mut random: u128) -> Self {
        let mut digit = || {
            let digit = usize::try_from(random % 32).unwrap_or_default();
            random /= 32;
            ALPHABET.chars().nth(digit)
        };
        let mut group = || -> String { (0..GROUP).filter_map(|_| digit()).collect() };
        let groups: Vec<String> = (0..GROUPS).map(|_| group()).collect();
        Self(groups.join("-"))
    }

    /// Reads a code, in lower case.
    fn parse(text: &str) -> Option<Self> {
        let is_group = |group: &str| {
            group.len() == GROUP && group.chars().all(|digit| ALPHABET.contains(digit))
        };
        let is_code = text.split('-').count() == GROUPS && text.split('-').all(is_group);
        is_code.then(|| Self(text.to_owned()))
    }

    /// The first group, which need not be secret.
    fn label(&self) -> &str {
        self.0.get(..GROUP).unwrap_or_default()
    }
}

/// Without the code: what is printed for debugging ends up in logs.
impl fmt::Debug for AnswerCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerCode")
    }
}

/// The words of a decision in a reply; `None` if it cannot be made by mail. Rules for later
/// commands and the content of forms cannot.
fn words(decision: &Decision) -> Option<&'static str> {
    match decision {
        Decision::Accept => Some("accept"),
        Decision::AcceptForSession => Some("accept for session"),
        Decision::Decline => Some("decline"),
        Decision::AcceptWithExecpolicyAmendment(_)
        | Decision::ApplyNetworkPolicyAmendment(_)
        | Decision::Cancel
        | Decision::Submit(_) => None,
    }
}

/// The decisions on a question that its notice offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// The decisions; none if the question is closed.
    pub decisions: Vec<Decision>,
    /// The part of the question that the notice does not show, so that mail cannot approve it.
    pub hidden: Option<&'static str>,
}

/// The decisions on a question that can be made by mail. `is_bounded` leaves out those by which a
/// command would leave its sandbox.
#[must_use]
pub fn offer(ask: &Ask, is_bounded: bool) -> Offer {
    let mut decisions = choices(ask);
    // A form can only be declined.
    if decisions.is_empty() {
        decisions.push(Decision::Decline);
    }
    decisions.retain(|decision| {
        words(decision).is_some() && !(is_bounded && leaves_the_sandbox(ask, decision))
    });
    let hidden = hidden_part(ask).filter(|_| decisions != [Decision::Decline]);
    if hidden.is_some() {
        decisions.retain(|decision| *decision == Decision::Decline);
    }
    Offer { decisions, hidden }
}

/// The part of a question that its notice does not show. The model chooses the words of a question,
/// so it can also write what is masked or shortened.
fn hidden_part(ask: &Ask) -> Option<&'static str> {
    let whole = approval_text::question(ask);
    // The notice is masked as a whole, too.
    let is_masked = approval_text::masked_question(ask) != whole || mask(&whole) != whole;
    match ActionKind::from(ask) {
        ActionKind::FileChange => Some("the contents of the changes"),
        _ if is_masked => Some("a part that looks like a credential"),
        _ if approval_text::is_shortened(&whole) => Some("the whole question"),
        _ => None,
    }
}

/// Why a recipient may not answer the questions of a member of `team`; `None` if it may. Its
/// replies must reach the member, and it must be neither `asking`, the identity of the member, nor
/// `user`, that of the user's own configuration: threads of the member, the page, and jobs send
/// mail in their names. Some file systems do not tell upper from lower case.
#[must_use]
pub fn cannot_answer(
    recipient: &Address,
    asking: &AgentName,
    user: Option<&AgentName>,
    team: Option<&TeamName>,
) -> Option<&'static str> {
    let agent = recipient.agent.as_str();
    let is = |sender: &AgentName| agent.eq_ignore_ascii_case(sender.as_str());
    let Some(team) = team else {
        return Some("the asking server has no team");
    };
    if recipient.team.as_ref().is_some_and(|named| named != team) {
        return Some("it is in another team than the asking server");
    }
    if is(asking) {
        return Some("it is the identity of the asking server");
    }
    user.is_some_and(is)
        .then_some("it is the identity of your own configuration")
}

/// A warning for each agent among the notifiers that may not answer the questions of a member of
/// `team`, or one if there is no agent. `asking` and `user` are as for [`cannot_answer`].
#[must_use]
pub fn answer_warnings(
    notifiers: &[Notifier],
    asking: &AgentName,
    user: Option<&AgentName>,
    team: Option<&TeamName>,
) -> Vec<String> {
    let is_mail = |notifier: &Notifier| matches!(notifier, Notifier::Mail(_));
    if !notifiers.iter().any(is_mail) {
        let nobody = "answer_by_mail: nobody can answer: notify names no agent (mail:)";
        return vec![nobody.to_owned()];
    }
    let warning = |notifier: &Notifier| {
        let Notifier::Mail(recipient) = notifier else {
            return None;
        };
        let why = cannot_answer(recipient, asking, user, team)?;
        Some(format!("answer_by_mail: {notifier} cannot answer: {why}"))
    };
    notifiers.iter().filter_map(warning).collect()
}

/// A text with its codes hidden, for readers who may not answer in the name of the recipient.
#[must_use]
pub fn without_codes(text: &str) -> String {
    let is_between = |character: char| !(character.is_ascii_alphanumeric() || character == '-');
    let hidden = |piece: &str| {
        let word = piece.trim_end_matches(is_between);
        let (_, rest) = piece.split_at(word.len());
        match AnswerCode::parse(&word.to_ascii_lowercase()) {
            Some(_) => format!("[code]{rest}"),
            None => piece.to_owned(),
        }
    };
    text.split_inclusive(is_between).map(hidden).collect()
}

/// The end of a notice: the replies that decide.
#[must_use]
pub fn instructions(offer: &Offer, AnswerCode(code): &AnswerCode) -> String {
    let hidden = offer.hidden.map_or_else(String::new, |part| {
        format!(
            "\n\nThis notice does not show {part}. Mail cannot approve the question: use a \
             terminal, the page or the client for that."
        )
    });
    let lines = offer.decisions.iter().filter_map(words);
    let lines: String = lines.map(|words| format!("\n{words} {code}")).collect();
    format!("{hidden}\n\nTo decide, reply with one of these lines:\n{lines}")
}

/// The decision and the code of a reply, if its first line is just these.
fn parse(line: &str) -> Option<(Decision, AnswerCode)> {
    let line = line.to_ascii_lowercase();
    let (first, code) = line.rsplit_once(' ')?;
    let all = [
        Decision::Accept,
        Decision::AcceptForSession,
        Decision::Decline,
    ];
    let decision = all.into_iter().find(|one| words(one) == Some(first))?;
    Some((decision, AnswerCode::parse(code)?))
}

/// A code that was sent, with its question `Q`.
#[derive(Debug, Clone)]
pub struct SentCode<Q> {
    /// The code.
    pub code: AnswerCode,
    /// Its question.
    pub question: Q,
    /// The recipient.
    pub recipient: AgentName,
    /// The team of the recipient and of the sender.
    pub team: TeamName,
    /// The decisions that the notice offers.
    pub decisions: Vec<Decision>,
    /// The first line of the notice.
    pub notice: String,
}

/// What to do about a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict<Q> {
    /// It is ordinary mail.
    Ordinary,
    /// The recipient of the code decides the question.
    Decided {
        /// The question.
        question: Q,
        /// The decision.
        decision: Decision,
        /// The recipient.
        by: Address,
        /// The code.
        code: AnswerCode,
    },
    /// The code is right, but the notice does not offer this decision.
    NotOffered {
        /// The recipient.
        by: Address,
        /// The offered decisions, in words.
        offered: String,
    },
    /// The code is wrong. The message stays as it is.
    Wrong {
        /// The recipient.
        by: Address,
    },
    /// Too many of its replies were wrong or refused before. The message stays as it is.
    Exhausted {
        /// The recipient.
        by: Address,
    },
}

/// The codes of open questions, and of those that were closed a moment ago.
#[derive(Debug)]
pub struct MailAnswers<Q> {
    codes: Vec<KnownCode<Q>>,
    /// The keys of the replies that were judged.
    judged: HashSet<u64>,
}

#[derive(Debug)]
struct KnownCode<Q> {
    sent: SentCode<Q>,
    tries_left: u8,
    /// When the question was found closed.
    closed: Option<Instant>,
    /// Whether the recipient knows how the question was closed.
    is_informed: bool,
}

impl<Q> Default for MailAnswers<Q> {
    fn default() -> Self {
        Self {
            codes: Vec::new(),
            judged: HashSet::new(),
        }
    }
}

impl<Q: Clone> MailAnswers<Q> {
    /// Adds a code that is about to be sent.
    pub fn add(&mut self, sent: SentCode<Q>) {
        self.codes.push(KnownCode {
            sent,
            tries_left: TRIES,
            closed: None,
            is_informed: false,
        });
    }

    /// Forgets the codes of questions that were closed some time ago. Returns whether replies have
    /// to be looked for.
    pub fn update(&mut self, now: Instant, is_open: impl Fn(&Q) -> bool) -> bool {
        self.codes.retain_mut(|code| {
            if is_open(&code.sent.question) {
                return true;
            }
            let closed = *code.closed.get_or_insert(now);
            now.duration_since(closed) < LATE
        });
        if self.codes.is_empty() {
            self.judged.clear();
        }
        !self.codes.is_empty()
    }

    /// Takes the codes of closed questions whose recipients have yet to hear how. Each is returned
    /// once.
    pub fn take_closed(&mut self) -> Vec<SentCode<Q>> {
        let is_new = |code: &&mut KnownCode<Q>| code.closed.is_some() && !code.is_informed;
        let closed = self.codes.iter_mut().filter(is_new);
        let closed = closed.map(|code| {
            code.is_informed = true;
            code.sent.clone()
        });
        closed.collect()
    }

    /// Notes that a recipient knows how a question was closed.
    pub fn informed(&mut self, recipient: &Address, is_question: impl Fn(&Q) -> bool) {
        let is_theirs = |code: &&mut KnownCode<Q>| {
            code.sent.address() == *recipient && is_question(&code.sent.question)
        };
        let theirs = self.codes.iter_mut().filter(is_theirs);
        theirs.for_each(|code| code.is_informed = true);
    }

    /// Judges a message. Each is judged once.
    pub fn judge(&mut self, message: &FirstLine) -> Verdict<Q> {
        let Some((decision, code)) = parse(&message.line) else {
            return Verdict::Ordinary;
        };
        let is_meant = |known: &&KnownCode<Q>| {
            known.sent.is_for(message) && known.sent.code.label() == code.label()
        };
        let mut meant = self.codes.iter().filter(is_meant);
        let exact = meant.find(|known| known.sent.code == code);
        let Some(known) = exact.or_else(|| self.codes.iter().find(is_meant)) else {
            return Verdict::Ordinary;
        };
        if !self.judged.insert(message.key) {
            return Verdict::Ordinary;
        }
        let by = known.sent.address();
        if known.tries_left == 0 {
            return Verdict::Exhausted { by };
        }
        if known.sent.code != code {
            let theirs = self.codes.iter_mut();
            let theirs = theirs.filter(|known| known.sent.is_for(message));
            theirs.for_each(KnownCode::use_try);
            return Verdict::Wrong { by };
        }
        if !known.sent.decisions.contains(&decision) {
            let offered: Vec<_> = known.sent.decisions.iter().filter_map(words).collect();
            let offered = offered.join(", ");
            self.refused(&code);
            return Verdict::NotOffered { by, offered };
        }
        Verdict::Decided {
            question: known.sent.question.clone(),
            decision,
            by,
            code,
        }
    }

    /// Notes that a decision with this code was refused.
    pub fn refused(&mut self, code: &AnswerCode) {
        let refused = self
            .codes
            .iter_mut()
            .filter(|known| known.sent.code == *code);
        refused.for_each(KnownCode::use_try);
    }
}

impl<Q> SentCode<Q> {
    /// The recipient, with its team.
    #[must_use]
    pub fn address(&self) -> Address {
        Address {
            agent: self.recipient.clone(),
            team: Some(self.team.clone()),
        }
    }

    /// Whether a message names the recipient as its sender, in the team if it names one.
    fn is_for(&self, message: &FirstLine) -> bool {
        let Ok(Address { agent, team }) = message.from.parse() else {
            return false;
        };
        let is_of_team = |team: &str| team == self.team.as_str();
        agent == self.recipient
            && team.is_none_or(|team| is_of_team(team.as_str()))
            && message.source_team.as_deref().is_none_or(is_of_team)
    }
}

impl<Q> KnownCode<Q> {
    fn use_try(&mut self) {
        self.tries_left = self.tries_left.saturating_sub(1);
    }
}
