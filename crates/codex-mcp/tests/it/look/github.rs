//! Criteria about pull requests and comments, with a fake gh.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use goal_run::logic::snapshot::Preexisting;
use serde_json::{Value, json};
use testkit::wait::wait_for;
use testkit::write_program;

use super::{Scene, beginnings, told};

/// Answers with the files beside it, and records its arguments.
const GH: &str = r#"#!/bin/sh
tip=$(git rev-parse HEAD)
chosen=$(git config --get remote.origin.gh-resolved)
cd "$(dirname "$0")" || exit 1
printf '%s\n' "$*" >> asked
[ ! -e hang ] || sleep 600
case "$*" in
    --version) echo "gh version 2.0.0" ;;
    "api -i user") cat user; exit "$(cat user.exit)" ;;
    "pr list --head="*) sed "s/TIP/$tip/g" "pulls${chosen:+-$chosen}" ;;
    "api repos/o/r/issues/7/comments?"*"page=1") cat comments ;;
    "api repos/o/r/issues/7/comments?"*"page=2") cat comments-2 ;;
    *) echo "unknown: $*" >&2; exit 1 ;;
esac
"#;

const USER: &str = "HTTP/2.0 200 OK\r\nDate: Wed, 01 Jul 2026 12:00:00 GMT\r\nX: y\r\n\r\n";

const BEFORE: &str = "2026-07-01T11:59:59Z";
const AFTER: &str = "2026-07-01T12:00:00Z";

struct GitHub {
    scene: Scene,
    directory: PathBuf,
}

impl GitHub {
    fn new() -> Self {
        let mut scene = Scene::new();
        scene.with_remote();
        let directory = scene.home.root().join("bin");
        let program = directory.join("gh");
        write_program(&program, GH);
        let path = std::env::var("PATH").unwrap();
        scene.set("PATH", format!("{}:{path}", directory.display()));
        scene.means.network_timeout = Duration::from_secs(60);
        let github = Self { scene, directory };
        github.says("user", &format!("{USER}{}", json!({"login": "Me"})));
        github.says("user.exit", "0");
        github.has("pulls", &[]);
        github.has("comments", &[]);
        github
    }

    fn says(&self, about: &str, words: &str) {
        fs::write(self.directory.join(about), words).unwrap();
    }

    fn has(&self, what: &str, values: &[Value]) {
        self.says(what, &json!(values).to_string());
    }

    fn asked(&self) -> String {
        fs::read_to_string(self.directory.join("asked")).unwrap()
    }

    async fn refused(&self, criterion: &str) -> String {
        let looker = self.scene.try_at(&self.scene.work(), &[criterion]).await;
        let refused = looker.unwrap().start().await;
        refused.unwrap_err().to_string()
    }
}

/// The placeholder for the checked-out commit in the answers of the fake gh.
const TIP: &str = "TIP";

fn pull(number: u64, branch: &str, made: &str) -> Value {
    json!({"number": number, "url": format!("https://github.com/o/r/pull/{number}"),
        "createdAt": made, "headRefName": branch, "headRefOid": TIP})
}

fn comment(number: u64, login: &str, made: &str) -> Value {
    json!({"html_url": format!("https://github.com/o/r/issues/7#issuecomment-{number}"),
        "created_at": made, "user": {"login": login}, "body": "words"})
}

#[tokio::test]
async fn pull_request_age_follows_githubs_clock() {
    let github = GitHub::new();
    github.has("pulls", &[pull(1, "main", BEFORE)]);
    let run = github.scene.run(&["pr"]).await;
    let old = "no: https://github.com/o/r/pull/1 was open at the start";
    run.assert_first(&run.judged().await, old);
    // A pull request that the first inspection did not show, and one of another branch.
    github.has(
        "pulls",
        &[
            pull(1, "main", BEFORE),
            pull(2, "main", BEFORE),
            pull(3, "mainly", AFTER),
        ],
    );
    run.assert_first(&run.judged().await, old);
    github.has("pulls", &[pull(1, "main", BEFORE), pull(4, "main", AFTER)]);
    assert_eq!(
        run.judged().await,
        ["yes: https://github.com/o/r/pull/4 is open"]
    );

    github
        .scene
        .git(&["checkout", "--quiet", "-b", "it's-$(x)"]);
    github.has("pulls", &[]);
    run.assert_first(&run.judged().await, "no: no pull request is open");
    assert!(
        github
            .asked()
            .contains("pr list --head=it's-$(x) --state=open")
    );
    github.scene.git(&["checkout", "--quiet", "--detach"]);
    run.assert_first(&run.judged().await, "no: no pull request is open");
}

#[tokio::test]
async fn pull_request_without_the_last_commits_does_not_count() {
    let github = GitHub::new();
    let run = github.scene.run(&["pr"]).await;
    let mut stale = pull(1, "main", AFTER);
    stale["headRefOid"] = json!(github.scene.git(&["rev-parse", "HEAD"]));
    github.has("pulls", &[stale]);
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
    github.scene.commit("a");
    run.assert_first(&run.judged().await, "no: no pull request is open");
}

/// `gh repo set-default` notes the choice in the repository's settings.
#[tokio::test]
async fn pull_request_is_searched_in_the_repository_that_the_user_chose_for_gh() {
    let github = GitHub::new();
    github
        .scene
        .git(&["config", "remote.origin.gh-resolved", "base"]);
    github.has("pulls-base", &[]);
    let run = github.scene.run(&["pr"]).await;
    github.has("pulls-base", &[pull(1, "main", AFTER)]);
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
}

#[tokio::test]
async fn commands_repeat_github_queries_only_for_another_branch() {
    let github = GitHub::new();
    let texts = ["pr", "issue_comment=o/r#7", "clean"];
    let run = github.scene.run(&texts).await;
    github.has("pulls", &[pull(1, "main", AFTER)]);
    github.has("comments", &[comment(2, "me", AFTER)]);
    let before = run.looker.now().await;
    let asked = github.asked();
    let judged = async || {
        let after = run.looker.after_commands(&before).await;
        told(&run.verdict(&after, Preexisting::Ignored))
    };
    github.scene.write("left.txt", "by a command");
    assert_eq!(beginnings(&judged().await), ["yes", "yes", "no"]);
    assert_eq!(github.asked(), asked);

    github.scene.git(&["checkout", "--quiet", "-b", "other"]);
    assert_eq!(beginnings(&judged().await), ["no", "yes", "no"]);
    let more = github.asked().replacen(&asked, "", 1);
    assert!(more.starts_with("pr list --head=other "), "{more}");
    assert_eq!(more.lines().count(), 1, "{more}");
}

#[tokio::test]
async fn queries_are_given_up_on_request() {
    let github = GitHub::new();
    let texts = ["pr", "issue_comment=o/r#7", "clean", "files=**"];
    let run = github.scene.run(&texts).await;
    github.says("hang", "");
    let asked = github.asked();
    let halted = async {
        wait_for("a call of gh", async || {
            (github.asked() != asked).then_some(())
        })
        .await;
        github.scene.means.halt.cancel();
    };
    let (judged, ()) = tokio::join!(run.judged(), halted);
    assert!(
        judged.concat().contains("asking gh was cancelled"),
        "{judged:?}"
    );
    let judged = run.judged().await;
    assert_eq!(beginnings(&judged), ["unknown"; 4], "{judged:?}");
    let all = judged.concat();
    assert!(all.contains("asking git was cancelled"), "{all}");
    assert!(
        all.contains("the search of the files was cancelled"),
        "{all}"
    );
    assert_eq!(github.scene.home.processes(), []);
}

#[tokio::test]
async fn only_own_new_comments_count() {
    let github = GitHub::new();
    github.has(
        "comments",
        &[comment(1, "me", BEFORE), comment(2, "other", BEFORE)],
    );
    let run = github.scene.run(&["issue_comment=o/r#7"]).await;
    run.assert_first(&run.judged().await, "no: there is no new comment of yours");
    // Later changes are reported too.
    github.has(
        "comments",
        &[comment(1, "me", BEFORE), comment(3, "other", AFTER)],
    );
    run.assert_first(&run.judged().await, "no");
    github.has("comments", &[comment(4, "me", AFTER)]);
    let now = run.looker.now().await;
    assert_eq!(
        told(&run.verdict(&now, Preexisting::Ignored)),
        ["yes: there is a new comment of yours: https://github.com/o/r/issues/7#issuecomment-4"]
    );
    github.has("comments", &[]);
    let now = run.looker.now().await;
    assert_eq!(
        told(&run.verdict(&now, Preexisting::Counts)),
        ["yes: there is a comment of yours: https://github.com/o/r/issues/7#issuecomment-1"],
        "what was there is remembered"
    );
    let asked = github.asked();
    let place = "api repos/o/r/issues/7/comments?per_page=100";
    assert!(asked.contains(&format!("{place}&page=1\n")), "{asked}");
    assert!(
        asked.contains(&format!("{place}&since=2026-07-01T12:00:00Z&page=1\n")),
        "{asked}"
    );
}

#[tokio::test]
async fn comments_are_read_page_by_page() {
    let github = GitHub::new();
    let run = github.scene.run(&["issue_comment=o/r#7"]).await;
    let others: Vec<Value> = (0..100)
        .map(|number| comment(number, "other", AFTER))
        .collect();
    github.has("comments", &others);
    github.has("comments-2", &[comment(100, "me", AFTER)]);
    assert_eq!(beginnings(&run.judged().await), ["yes"]);
}

#[tokio::test]
async fn failing_or_garbled_gh_proves_nothing() {
    let github = GitHub::new();
    let run = github.scene.run(&["pr", "issue_comment=o/r#7"]).await;
    github.says("pulls", "garbage");
    fs::remove_file(github.directory.join("comments")).unwrap();
    let judged = run.judged().await;
    let beginning = "unknown: gh's answer cannot be read: expected value at line 1";
    run.assert_first(&judged, beginning);
    assert!(
        judged[1].starts_with("unknown: gh exited with code 1: cat:"),
        "{judged:?}"
    );
    github.has("pulls", &[pull(1, "main", "yesterday")]);
    run.assert_first(
        &run.judged().await,
        "unknown: gh's answer cannot be read: a malformed time",
    );
}

#[tokio::test]
async fn gh_that_hangs_is_ended() {
    let mut github = GitHub::new();
    let mut run = github.scene.run(&["pr"]).await;
    github.scene.means.network_timeout = Duration::from_millis(300);
    github.says("hang", "");
    let patient = run.looker;
    let looker = github.scene.try_at(&github.scene.work(), &["pr"]).await;
    let refused = looker.unwrap_err().to_string();
    assert_eq!(
        refused,
        "`pr` cannot be judged here: gh took longer than 300ms"
    );
    fs::remove_file(github.directory.join("hang")).unwrap();
    run.looker = patient;
    assert_eq!(beginnings(&run.judged().await), ["no"]);
    assert_eq!(github.scene.home.processes(), []);
}

#[tokio::test]
async fn missing_gh_login_is_reported_at_once() {
    let github = GitHub::new();
    github.says("user.exit", "4");
    assert_eq!(
        github.refused("pr").await,
        "gh is not logged in: no message; run gh auth login"
    );
    github.says("user.exit", "1");
    github.says("user", "HTTP/2.0 401 Unauthorized\nDate: x\n\n{}");
    assert!(
        github
            .refused("pr")
            .await
            .starts_with("gh is not logged in")
    );
    github.says("user", "");
    let refused = github.refused("pr").await;
    assert!(
        refused.starts_with("`pr` cannot be judged here: gh exited with code 1"),
        "{refused}"
    );

    // An app's token has no account, but can open pull requests.
    let date = USER.replace("200 OK", "403 Forbidden");
    github.says("user", &date);
    github.scene.run(&["pr"]).await;
    assert!(
        github
            .refused("issue_comment=o/r#7")
            .await
            .contains("whose comments")
    );
}
