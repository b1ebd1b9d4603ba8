//! Our tools for Codex's own threads: pictures, and the mail of the member that they work
//! for.

use std::path::PathBuf;

use agent_team::MailClient;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use codex_engine::{Reply, ThreadTools, ToolInvocation};
use codex_protocol::codex::{DynamicTool, ToolAnswer, ToolContent};
use futures::future::BoxFuture;
use image_request::ImageRoot;
use image_request::fitted::FittedPicture;
use image_request::logic::contract::TOOL;
use image_request::logic::picture::SizeLimit;
use rmcp::model::{CallToolResult, Tool};
use safe_files::{directory, off_runtime};
use serde_json::{Map, Value, json};

use super::request_image::{PictureDelivery, describe, show};
use crate::deliveries::ToolOutcome;
use crate::tools::team::MailTool;

/// The longest answer, in characters. Codex cuts the middle out of an answer of more than some
/// 12,000 (0.104.0 to 0.169.0). Mail that was cut out would still count as read.
const LONGEST_ANSWER: usize = 9000;

/// The tools that threads get.
#[derive(Clone, Default)]
pub struct OwnThreadTools {
    /// The largest size of a picture; `None` without pictures.
    pictures: Option<SizeLimit>,
    mail: Option<(MailClient, Approval)>,
}

/// Whether each call needs an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// The calls are approved beforehand.
    Beforehand,
    /// Each call is approved like other questions of Codex.
    EachCall,
}

impl OwnThreadTools {
    /// The same, with pictures up to this size.
    #[must_use]
    pub fn with_pictures(self, limit: SizeLimit) -> Self {
        Self {
            pictures: Some(limit),
            ..self
        }
    }

    /// The same, with this mail.
    #[must_use]
    pub fn with_mail(self, mail_client: MailClient, approval: Approval) -> Self {
        Self {
            mail: Some((mail_client, approval)),
            ..self
        }
    }

    async fn answer(self, call: ToolInvocation) -> Result<Reply, String> {
        if let (TOOL, Some(limit)) = (call.tool.as_str(), self.pictures) {
            return show_picture(limit, call).await.map(Reply::from);
        }
        let mail = MailTool::named(&call.tool);
        match (mail, self.mail) {
            (Some(mail), Some((mail_client, _))) => {
                handle(mail, &mail_client, call.arguments).await
            }
            _ => Err(format!("{} is not available here", call.tool)),
        }
    }
}

impl ThreadTools for OwnThreadTools {
    fn describe(&self) -> Vec<DynamicTool> {
        let pictures = self.pictures.map(|_| describe(&PictureDelivery::Inline));
        let mail = self
            .mail
            .iter()
            .flat_map(|_| MailTool::ALL.map(MailTool::describe));
        pictures.into_iter().chain(mail).map(dynamic).collect()
    }

    /// Counting mail reveals nothing of its content, so it needs no approval.
    fn needs_approval(&self, tool: &str) -> bool {
        let approval = self.mail.as_ref().map(|(_, approval)| *approval);
        let looks = matches!(MailTool::named(tool), None | Some(MailTool::PendingCount));
        approval == Some(Approval::EachCall) && !looks
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'static, Reply> {
        let tools = self.clone();
        Box::pin(async move {
            let answered = tools.answer(call).await;
            answered.unwrap_or_else(|why| ToolAnswer::refusal(why).into())
        })
    }
}

async fn show_picture(limit: SizeLimit, call: ToolInvocation) -> Result<ToolAnswer, String> {
    let cwd = call.cwd.ok_or("it is not known where this thread works")?;
    let root = off_runtime::run(move || picture_root(cwd, limit)).await;
    let root = root.map_err(|error| error.to_string())??;
    let shown = show(root, call.arguments, call.codex).await;
    let FittedPicture { bytes, kind } = shown.map_err(|error| error.to_string())??;
    let (kind, bytes) = (kind.media_type(), STANDARD.encode(bytes));
    Ok(ToolAnswer::picture(format!("data:{kind};base64,{bytes}")))
}

/// The root below which pictures may be. It is an error if the directory was replaced after the
/// thread began there.
fn picture_root(cwd: PathBuf, limit: SizeLimit) -> Result<ImageRoot, String> {
    directory::check(&cwd).map_err(|error| error.to_string())?;
    let root = ImageRoot::around(&cwd, limit);
    root.map_err(|error| format!("cannot look into {}: {error}", cwd.display()))
}

async fn handle(
    mail: MailTool,
    mail_client: &MailClient,
    arguments: Value,
) -> Result<Reply, String> {
    let Value::Object(arguments) = arguments else {
        return Err("the arguments must be an object".to_owned());
    };
    let (result, delivered) = match mail.call(mail_client, arguments).await {
        Ok(ToolOutcome { result, then }) => (result, then),
        Err(error) => (error.into_plain_result(), None),
    };
    let answer = answer(&result);
    let length = answer.text().map_or(0, |text| text.chars().count());
    // The messages then stay unread.
    if length > LONGEST_ANSWER {
        return Err(format!(
            "the answer has {length} characters, more than the {LONGEST_ANSWER} that you would be \
             shown. Ask for fewer messages (max_messages), or less of each (max_message_length)."
        ));
    }
    Ok(Reply { answer, delivered })
}

fn answer(result: &CallToolResult) -> ToolAnswer {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    let texts = texts.map(|text| ToolContent::InputText {
        text: text.text.clone(),
    });
    ToolAnswer {
        success: result.is_error != Some(true),
        content_items: texts.collect(),
    }
}

/// A tool in Codex's format. The model sees defaults only in the description.
fn dynamic(tool: Tool) -> DynamicTool {
    let mut schema = Value::Object(Map::clone(&tool.input_schema));
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(Map::values_mut) {
        if let Some(default) = property.get("default").cloned() {
            let words = property.get("description").and_then(Value::as_str);
            let words = words.map_or(String::new(), |words| format!("{words} "));
            property["description"] = json!(format!("{words}Default: {default}."));
        }
    }
    DynamicTool {
        name: tool.name.into_owned(),
        description: tool.description.unwrap_or_default().into_owned(),
        input_schema: schema,
    }
}

#[cfg(test)]
mod tests {
    use agent_team::logic::TeamName;

    use super::*;
    use agent_team::Member;

    fn call(tool: &str, arguments: Value) -> ToolInvocation {
        ToolInvocation {
            tool: tool.to_owned(),
            arguments,
            cwd: None,
            codex: None,
        }
    }

    fn with_mail(home: &std::path::Path, approval: Approval) -> OwnThreadTools {
        let member = Member {
            identity: "arch".parse().unwrap(),
            team: Some("builders".parse::<TeamName>().unwrap()),
        };
        let mail_client = MailClient::of(&member, home, 10 << 20).unwrap().unwrap();
        OwnThreadTools::default().with_mail(mail_client, approval)
    }

    #[tokio::test]
    async fn thread_tools_depend_on_pictures_and_mail() {
        let home = tempfile::tempdir().unwrap();
        let tools = with_mail(home.path(), Approval::Beforehand);
        let names = |tools: &OwnThreadTools| -> Vec<String> {
            tools.describe().into_iter().map(|tool| tool.name).collect()
        };
        let mail = ["atm_send", "atm_read", "atm_broadcast", "atm_pending_count"];
        assert_eq!(names(&tools), mail);
        let all = tools.clone().with_pictures(SizeLimit::default());
        assert_eq!(names(&all)[0], TOOL);
        assert_eq!(names(&all)[1..], mail);
        assert_eq!(names(&OwnThreadTools::default()), [""; 0]);
        let read = &tools.describe()[1];
        let most = &read.input_schema["properties"]["max_messages"];
        assert_eq!(most["description"], "Default: 10.");

        for (tool, arguments, why) in [
            (TOOL, json!({}), "request_image is not available here"),
            ("atm_send", json!([]), "the arguments must be an object"),
            ("atm_send", json!({ "to": "x" }), "message"),
            ("codex_threads", json!({}), "not available"),
        ] {
            let reply = tools.call(call(tool, arguments)).await;
            assert!(!reply.answer.success);
            let text = reply.answer.text().unwrap();
            assert!(text.contains(why), "{tool}: {text}");
        }
        let pictures = OwnThreadTools::default().with_pictures(SizeLimit::default());
        let reply = pictures.call(call("atm_read", json!({}))).await;
        assert!(reply.answer.text().unwrap().contains("not available"));
        let reply = pictures.call(call(TOOL, json!({ "path": "a.png" }))).await;
        assert!(
            reply
                .answer
                .text()
                .unwrap()
                .contains("where this thread works")
        );
    }

    /// The model has replaced the directory of its thread by a link to the user's home.
    #[tokio::test]
    async fn pictures_of_a_replaced_directory_are_not_shown() {
        let all = tempfile::tempdir().unwrap();
        let all = all.path().canonicalize().unwrap();
        let (cwd, home) = (all.join("src"), all.join("home"));
        std::fs::create_dir(&home).unwrap();
        let pixel = image::RgbImage::new(1, 1);
        pixel.save(home.join("secret.png")).unwrap();
        std::os::unix::fs::symlink(&home, &cwd).unwrap();
        let tools = OwnThreadTools::default().with_pictures(SizeLimit::default());
        let look = |cwd: &std::path::Path| {
            let call = call(TOOL, json!({ "path": "secret.png" }));
            tools.call(ToolInvocation {
                cwd: Some(cwd.to_owned()),
                ..call
            })
        };
        let refused = look(&cwd).await.answer;
        assert!(
            refused
                .text()
                .unwrap()
                .contains("replaced by a symbolic link")
        );
        // The control: there is a picture.
        assert!(look(&home).await.answer.success);
    }

    #[test]
    fn mail_calls_need_approval_unless_approved_beforehand() {
        let home = tempfile::tempdir().unwrap();
        for (approval, asked) in [
            (Approval::Beforehand, [false; 3]),
            (Approval::EachCall, [true, true, true]),
        ] {
            let tools = with_mail(home.path(), approval);
            let asks =
                ["atm_send", "atm_read", "atm_broadcast"].map(|tool| tools.needs_approval(tool));
            assert_eq!(asks, asked);
            assert!(!tools.needs_approval("atm_pending_count"));
            assert!(!tools.needs_approval(TOOL));
        }
    }
}
