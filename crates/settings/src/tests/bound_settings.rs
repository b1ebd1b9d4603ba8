use super::World;
use crate::flags::Flags;

#[test]
fn missing_directory_of_allow_dirs_causes_a_warning() {
    let flags = |path: &str| Flags {
        allow_dirs: vec![path.into()],
        ..Flags::default()
    };
    let world = World::new();
    assert_eq!(world.load(flags(".")).unwrap().warnings, []);
    let warnings = world.load(flags("absent")).unwrap().warnings;
    let told = warnings.first().unwrap().to_string();
    assert!(
        told.contains("--allow-dir") && told.contains("a/b/absent"),
        "{told}"
    );
}
