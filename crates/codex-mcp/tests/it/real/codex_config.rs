//! The precedence of Codex's configuration layers.

use std::fs;
use std::process::Stdio;

use codex_config::layers::{CodexConfig, UserConfig};
use codex_config::profile::ProfileName;
use codex_config::trust::codex_trust;
use scripted_model::{Reply, Script};
use tokio::process::Command;

use super::{CodexFixture, on_each_release};

on_each_release!(layers_apply_in_the_order_of_codex);

/// The model is set in all layers first, and in one layer fewer in each round.
async fn layers_apply_in_the_order_of_codex(release: &str) {
    let stage = CodexFixture::new(release, Script::new().otherwise([Reply::say("ok")])).await;
    let (work, home) = (stage.home.work(), stage.home.codex_home());
    let sub = work.join("sub");
    let user = home.join("config.toml");
    let settings = fs::read_to_string(&user).unwrap();
    let settings: String = settings
        .lines()
        .filter(|line| !line.starts_with("model ="))
        .map(|line| format!("{line}\n"))
        .collect();
    let trust = format!("[projects.{work:?}]\ntrust_level = \"trusted\"\n");
    let profile = ProfileName::try_from("p".to_owned()).unwrap();
    let mut layers = match release {
        "0.104.0" => vec!["table", "sub", "top", "user"],
        _ => vec!["sub", "top", "file", "user"],
    };
    fs::create_dir_all(sub.join(".codex")).unwrap();
    fs::create_dir_all(work.join(".codex")).unwrap();
    loop {
        let model = |layer| match layers.contains(&layer) {
            true => format!("model = \"{layer}\"\n"),
            false => String::new(),
        };
        let table = match release {
            "0.104.0" => format!("[profiles.p]\n{}", model("table")),
            _ => String::new(),
        };
        fs::write(
            &user,
            [model("user"), settings.clone(), trust.clone(), table].concat(),
        )
        .unwrap();
        fs::write(home.join("p.config.toml"), model("file")).unwrap();
        fs::write(work.join(".codex/config.toml"), model("top")).unwrap();
        fs::write(sub.join(".codex/config.toml"), model("sub")).unwrap();

        let ours = UserConfig::read(&home);
        let trusted = codex_trust(&sub, &ours).unwrap();
        let ours = ours.layers(Some(&profile), Some(&trusted));
        assert_eq!(model_of(&ours).as_deref(), layers.first().copied());
        let Some(first) = layers.first().copied() else {
            break;
        };
        let mut codex = Command::new(testkit::codex::native_binary(release));
        codex
            .args(["exec", "--profile=p", "--cd"])
            .arg(&sub)
            .arg("x");
        codex.env_clear().envs(stage.home.env());
        let output = codex.stdin(Stdio::null()).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(stage.model.requests().last().unwrap().model(), first);
        layers.remove(0);
    }
}

fn model_of(config: &CodexConfig) -> Option<String> {
    config.value_of("model")
}
