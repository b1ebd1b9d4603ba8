//! The settings of new threads in the files: those of a role, and those for all roles.

use std::path::{Path, PathBuf};

use agent_team::logic::RoleName;

use crate::error::ConfigError;
use crate::file::{File, Preset, SECTION, Scope};
use crate::lookup::user_file;
use crate::source::{Setting, Source};

/// The effective presets, in their order of precedence.
pub(super) struct Presets<'a>(Vec<(&'a Preset, Source, &'a File)>);

impl<'a> Presets<'a> {
    /// The presets of the role in each file, and then those of each file for all roles.
    pub(super) fn of(
        files: &'a [File],
        role: Option<&Setting<RoleName>>,
    ) -> Result<Self, ConfigError> {
        let mut all = Vec::new();
        if let Some(Setting {
            value: role,
            source,
        }) = role
        {
            all.extend(files.iter().filter_map(|file| {
                let preset = file.section.roles.get(role)?;
                Some((preset, Source::Role(role.clone(), file.path.clone()), file))
            }));
            if all.is_empty() {
                return Err(ConfigError::NoRole {
                    role: role.clone(),
                    from: source.clone(),
                    known: known_roles(files),
                });
            }
        }
        let for_all = |file: &'a File| {
            let source = Source::File(SECTION, file.path.clone());
            (&file.preset, source, file)
        };
        all.extend(files.iter().map(for_all));
        Ok(Self(all))
    }

    pub(super) fn first<T>(&self, get: impl Fn(&Preset) -> Option<T>) -> Option<Setting<T>> {
        self.0.iter().find_map(|(preset, source, _)| {
            let value = get(preset)?;
            Some(Setting::new(value, source.clone()))
        })
    }

    /// The path of a prompt file. A relative one starts at the directory of the settings file.
    pub(super) fn prompt_file(
        &self,
        key: &'static str,
        get: impl Fn(&Preset) -> Option<&Path>,
    ) -> Result<Option<Setting<PathBuf>>, ConfigError> {
        let found = self.0.iter().find_map(|(preset, source, file)| {
            let path = get(preset)?;
            Some((path, source, file))
        });
        let Some((path, source, file)) = found else {
            return Ok(None);
        };
        let directory = file.path.parent().unwrap_or(Path::new("."));
        let path = directory.join(path);
        let invalid = |why| ConfigError::Invalid {
            key,
            from: source.clone(),
            why,
        };
        let resolved = path
            .canonicalize()
            .map_err(|error| invalid(format!("{}: {error}", path.display())))?;
        let within = directory
            .canonicalize()
            .is_ok_and(|directory| resolved.starts_with(directory));
        if file.scope == Scope::Repository && !within {
            let why = format!("{} is outside of the repository", path.display());
            return Err(invalid(why));
        }
        Ok(Some(Setting::new(resolved, source.clone())))
    }
}

fn known_roles(files: &[File]) -> String {
    let roles: Vec<&str> = files
        .iter()
        .flat_map(|file| file.section.roles.keys())
        .map(RoleName::as_str)
        .collect();
    match roles.as_slice() {
        [] => {
            let user = user_file();
            format!(
                "define it in [{SECTION}.roles.NAME] of .atm.toml or {}",
                user.display()
            )
        }
        roles => format!("there are {}", roles.join(", ")),
    }
}
