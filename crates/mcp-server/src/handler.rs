//! Answers the MCP methods: lists tools, prompts and resources, and finds the tool of a call.

use std::future::pending;

use futures::future::join_all;
use futures::join;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    Implementation, InitializeRequestParams, InitializeResult, JsonObject, ListPromptsResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig,
    SubscribeRequestParams, SubscriptionFilter, TASKS_EXTENSION_ID, UnsubscribeRequestParams,
    UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use crate::instructions::instructions;
use crate::resources::watch::ResourceWatch;
use crate::server::Server;
use crate::{approval_card, prompts, resources, tools};

fn log(uri: &str, watched: Result<(), ErrorData>) {
    if let Err(error) = watched {
        tracing::warn!("the client is no longer notified of changes of {uri}: {error}");
    }
}

impl Server {
    fn tools(&self) -> Vec<tools::ToolName> {
        tools::names(self.api, &self.groups, self.services.mail_client.as_ref())
    }

    /// Whether some of its tools may answer by tasks.
    pub(crate) fn has_tasks(&self) -> bool {
        let has_turns = self.tasks.is_some();
        self.tools().iter().any(|tool| tool.has_tasks(has_turns))
    }

    /// Notifies a subscriber of the changes of the resources that its subscription names.
    async fn notify_of_resources(&self, context: &SubscriptionContext) {
        let named = context.accepted().resource_subscriptions.as_deref();
        let named = named.unwrap_or_default();
        let all = self.changing().into_iter();
        let chosen = all.filter(|resource| named.iter().any(|uri| uri == resource.uri()));
        let notifying = chosen.map(async |resource| {
            let uri = resource.uri();
            let watched = async {
                let mut watch = ResourceWatch::when_readable(&resource).await;
                // The first notification covers changes since the client last read the resource.
                while context.sink().notify_resource_updated(uri).await.is_ok() {
                    watch.next().await?;
                }
                // The client has gone.
                Ok(())
            };
            log(uri, watched.await);
        });
        join_all(notifying).await;
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let builder = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_completions()
            .enable_resources();
        let mut capabilities = match self.changing().is_empty() {
            false => builder.enable_resources_subscribe().build(),
            true => builder.build(),
        };
        if self.has_tasks() {
            let extensions = capabilities.extensions.get_or_insert_default();
            extensions.insert(TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
        }
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("codex-mcp", env!("CARGO_PKG_VERSION")).with_title("codex-mcp"),
            )
            .with_instructions(instructions(self.api, &self.groups))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let shows_cards = approval_card::is_shown(&context);
        let described = self.tools().into_iter().map(|tool| {
            let described = tool.describe();
            match shows_cards && tool.has_card() {
                true => described.with_meta(approval_card::of_tool()),
                false => described,
            }
        });
        Ok(ListToolsResult::with_all_items(described.collect()))
    }

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = prompts::list(&self.tools());
        Ok(ListPromptsResult::with_all_items(prompts))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        Ok(prompts::get(&self.tools(), &request.name, arguments)?.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        prompts::complete(self, &self.tools(), &request).await
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(self)))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(resources::read(self, &request.uri).await?.into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        resources::find(self, &request.uri)?;
        let all = self.changing().into_iter();
        let mut named = all.filter(|resource| resource.uri() == request.uri);
        let Some(resource) = named.next() else {
            // The other resources never change.
            return Ok(());
        };
        let (uri, peer) = (resource.uri(), context.peer);
        let mut watch = ResourceWatch::new(resource).await?;
        let watched = async move {
            loop {
                watch.next().await?;
                let about = ResourceUpdatedNotificationParam::new(uri);
                if peer.notify_resource_updated(about).await.is_err() {
                    // The client has gone.
                    return Ok(());
                }
            }
        };
        let notifying = async move { log(uri, watched.await) };
        self.notices.subscribe(uri, &self.closing, notifying);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.notices.unsubscribe(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let has_news = !self.changing().is_empty() || self.has_tasks();
        let mut accepted = SubscriptionFilter::new();
        // The lists of tools, prompts and resources never change.
        accepted.resource_subscriptions = requested.resource_subscriptions.clone();
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.retain(|uri| resources::find(self, uri).is_ok());
        }
        has_news.then_some(accepted)
    }

    /// Notifies a client without a handshake (MCP 2026-07-28), until it cancels the subscription.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let tasks = self.task_subscriptions.take(&context.request_context().id);
        let notifying = async {
            join!(
                self.notify_of_resources(&context),
                self.notify_of_tasks(&context, &tasks)
            );
            pending::<()>().await;
        };
        tokio::select! {
            () = context.cancelled() => {}
            () = self.closing.cancelled() => {}
            () = notifying => {}
        }
        Ok(())
    }

    /// Announces no tasks: no version with a handshake has them.
    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut info = self.negotiate_initialize(&request)?;
        info.capabilities.extensions = None;
        Ok(info)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.task(&request.task_id).await?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.answer_task(&request.task_id, request.input_responses)
            .await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.end_task(&request.task_id).await
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = tools::named(&self.tools(), &call.name)?;
        let _counted = tool.prompts().then(|| self.calls.begin());
        let answered = match &call.request_state {
            Some(state) if tool.returns_questions() => {
                let answers = call.input_responses.unwrap_or_default();
                let arguments = call.arguments.unwrap_or_default();
                let wait = tools::wait_of(&arguments);
                self.continue_turn(&context, state, answers, wait).await
            }
            _ => {
                tool.call(self, &context, call.arguments.unwrap_or_default())
                    .await
            }
        };
        let answered = answered.map(|response| match response {
            CallToolResponse::Complete(mut result) if tool.carries_warnings() => {
                self.warnings.attach(&mut result, || self.death_notice());
                CallToolResponse::Complete(result)
            }
            other => other,
        });
        answered.or_else(|error| {
            if error.reports_death() {
                // Marks the exit as reported, so that the next answer does not report it again.
                let _ = self.engine.unreported_exit();
            }
            tracing::debug!("{}: {}", call.name, error.text());
            Ok(tool.refusal(error).into())
        })
    }
}
