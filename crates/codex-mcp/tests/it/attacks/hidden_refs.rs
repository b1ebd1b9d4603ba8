//! Refs whose names make git resolve them instead of others (F11), with the real Codex.

use super::fixture::{COMMITTING_RUN, RepositoryFixture};

/// Creates an unwanted commit, and refs to it that hide others.
const PLANT: &str = r#"
echo made > a.txt && git add a.txt && git commit --quiet --message a
evil=$(git commit-tree -p HEAD -m evil 'HEAD^{tree}')
id=$(git rev-parse 'main~1' | cut -c 1-7)
for name in tags/main heads/v1 heads/HEAD tags/ORIG_HEAD heads/origin/main heads/origin/new \
    heads/refs/heads/later "heads/$id" heads/-x heads/fine remotes/origin/main \
    remotes/origin/more; do
    git update-ref "refs/$name" "$evil"
done
"#;

const REFUSED: [&str; 8] = [
    "tags/main",
    "heads/v1",
    "heads/HEAD",
    "tags/ORIG_HEAD",
    "heads/origin/main",
    "heads/origin/new",
    "heads/refs/heads/later",
    "heads/-x",
];

async fn stage(plant: &str) -> RepositoryFixture {
    let stage = RepositoryFixture::planting(plant).await;
    stage.home.add_remote(&stage.home.tmp().join("remote.git"));
    let git = |args: &[&str]| stage.home.git(args);
    git(&["push", "--quiet", "origin", "main"]);
    git(&["fetch", "--quiet", "origin"]);
    git(&["tag", "v1"]);
    stage
}

fn resolve(stage: &RepositoryFixture, name: &str) -> String {
    stage.home.git(&["rev-parse", "--quiet", "--verify", name])
}

/// The control is a repository that has the refs: git finds them.
#[tokio::test]
async fn refs_that_hide_others_are_kept_aside() {
    let attacked = stage(PLANT).await;
    let first = resolve(&attacked, "refs/heads/main");
    let (code, result, stderr) = attacked.run(&COMMITTING_RUN).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    let evil = resolve(&attacked, "refs/heads/fine");
    let names = attacked.home.git(&["for-each-ref", "--format=%(refname)"]);
    let names: Vec<&str> = names.lines().collect();
    for refused in REFUSED {
        let name = format!("refs/{refused}");
        assert!(!names.contains(&name.as_str()), "{name}: {names:?}");
        let is_kept = |one: &&&str| {
            let below = one.strip_prefix("refs/codex-mcp/");
            below.is_some_and(|below| below.ends_with(&format!("/{refused}")))
        };
        let kept = names.iter().find(is_kept);
        let kept = kept.unwrap_or_else(|| panic!("{refused} is not kept: {names:?}"));
        assert_eq!(resolve(&attacked, kept), evil);
        let warning = format!("Codex has created {name}, which was not imported");
        assert!(stderr.contains(&warning), "{stderr}");
        assert!(stderr.contains(kept), "{stderr}");
    }
    let short = &first[..7];
    for (name, expected) in [("v1", &first), ("origin/main", &first), (short, &first)] {
        assert_eq!(&resolve(&attacked, name), expected, "{name}");
    }
    assert_eq!(
        resolve(&attacked, "main"),
        resolve(&attacked, "refs/heads/main")
    );
    assert!(!names.contains(&"refs/remotes/origin/more"), "{names:?}");
    let warning = "into refs/remotes/origin/main, refs/remotes/origin/more was not imported";
    assert!(stderr.contains(warning), "{stderr}");
    assert_eq!(
        attacked
            .home
            .git(&["rev-list", "--count", "refs/remotes/origin/main..main"]),
        "1",
        "the commit is shown as not pushed"
    );

    let control = stage(PLANT).await;
    control.plant_as_user();
    let evil = resolve(&control, "refs/heads/fine");
    let first = resolve(&control, "refs/tags/v1");
    for name in ["main", "origin/main", &first[..7]] {
        assert_eq!(resolve(&control, name), evil, "{name}");
    }
}

/// Renames the user's branch `old` in the first turn, and a branch that was kept aside in the
/// second one.
const RENAME: &str = r#"
if git rev-parse --quiet --verify refs/heads/origin; then
    git update-ref -d refs/heads/origin && git update-ref refs/heads/origin/new main
else
    git update-ref -d refs/heads/old && git update-ref refs/heads/old/new main
    git update-ref refs/heads/origin main
fi
echo made >> a.txt && git add a.txt && git commit --quiet --message a
"#;

/// Git keeps no `x/y` beside `x`, neither among the branches nor among the refs below
/// `refs/codex-mcp`: one such name would make the import of the whole turn fail.
#[tokio::test]
async fn refs_that_git_cannot_keep_beside_others_are_kept_aside() {
    let stage = stage(RENAME).await;
    let git = |args: &[&str]| stage.home.git(args);
    git(&["branch", "old"]);
    let args = [
        "x",
        "--sandbox",
        "workspace-write",
        "--until",
        "commits=2",
        "--max-turns",
        "2",
    ];
    let (code, result, stderr) = stage.run(&args).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    assert_eq!(git(&["rev-list", "--count", "main"]), "3");
    let names = git(&["for-each-ref", "--format=%(refname)"]);
    let names: Vec<&str> = names.lines().collect();
    assert!(names.contains(&"refs/heads/old"), "{names:?}");
    for kept in ["/heads/old/new", "/heads/origin", "/2/heads/origin/new"] {
        let is_kept = |name: &&str| name.starts_with("refs/codex-mcp/") && name.ends_with(kept);
        assert!(names.iter().any(is_kept), "{kept}: {names:?}");
    }
    let warning = "refs/heads/old/new, which was not imported: it conflicts with \
                   refs/heads/old.";
    assert!(stderr.contains(warning), "{stderr}");
}

/// The branch that Codex pushed is imported, and a branch that somebody else pushed is not lost.
#[tokio::test]
async fn remote_branch_that_codex_fetches_is_imported() {
    let stage = stage(
        "echo made > a.txt && git add a.txt && git commit --quiet --message a\n\
         git fetch --quiet origin\ngit push --quiet origin HEAD:refs/heads/side\n",
    )
    .await;
    let git = |args: &[&str]| stage.home.git(args);
    let theirs = git(&["commit-tree", "-p", "main", "-m", "theirs", "main^{tree}"]);
    let refspec = format!("{theirs}:refs/heads/theirs");
    git(&["push", "--quiet", "origin", &refspec]);
    git(&["update-ref", "-d", "refs/remotes/origin/theirs"]);
    let (code, result, stderr) = stage.run(&COMMITTING_RUN).await;
    assert_eq!(code, Some(0), "{result:#}\n{stderr}");
    assert_eq!(resolve(&stage, "origin/theirs"), theirs, "{stderr}");
    assert_eq!(resolve(&stage, "origin/side"), resolve(&stage, "main"));
    assert!(!stderr.contains("was not imported"), "{stderr}");
}

/// The user's branch stays checked out where the name of Codex's branch is ambiguous for git.
#[tokio::test]
async fn branch_that_hides_others_is_not_checked_out() {
    let stage = stage(
        "git checkout --quiet -b later && git symbolic-ref HEAD refs/heads/HEAD\n\
         git update-ref refs/heads/HEAD refs/heads/later\n\
         echo made > a.txt && git add a.txt && git commit --quiet --message a\n",
    )
    .await;
    let (code, result, stderr) = stage.run(&COMMITTING_RUN).await;
    assert_eq!(code, Some(2), "{result:#}\n{stderr}");
    let git = |args: &[&str]| stage.home.git(args);
    assert_eq!(git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert_eq!(git(&["rev-list", "--count", "main"]), "1");
    assert!(
        stderr.contains("has a name that git could take"),
        "{stderr}"
    );
    let kept = git(&["for-each-ref", "--format=%(refname)", "refs/codex-mcp"]);
    assert!(kept.ends_with("/heads/HEAD"), "{kept}");
    assert_eq!(git(&["show", &format!("{kept}:a.txt")]), "made");
}
