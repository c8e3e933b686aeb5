use tempfile::TempDir;

use super::*;

const SKILL: &str = "skills/cynode-interaction.md";

/// Creates a folder with a small bundle for each role.
fn root() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for role in Role::ALL {
        let folder = root.path().join(role.as_str());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("baseline.md"), format!("<!-- role: {role} -->\n\nYou are a {role}.")).unwrap();
        fs::write(folder.join("20-tools.md"), "Tools.").unwrap();
        fs::write(folder.join("10-output.md"), "Output.").unwrap();
    }
    fs::create_dir_all(root.path().join("skills")).unwrap();
    fs::write(root.path().join(SKILL), "Skill.").unwrap();
    root
}

fn load(role: Role, own: &Path, other: &Path, root: &TempDir) -> Result<Bundle, Error> {
    Bundle::load(
        role,
        &config::Instructions { own: own.into(), other: other.into(), skill: root.path().join(SKILL) },
    )
}

fn load_default(role: Role, root: &TempDir) -> Result<Bundle, Error> {
    load(role, &root.path().join(role.as_str()), &root.path().join(role.other().as_str()), root)
}

#[test]
fn files_are_ordered_by_name_and_the_role_mark_is_removed() {
    let bundle = load_default(Role::ProjectAnalyst, &root()).unwrap();
    assert_eq!(bundle.baseline, "You are a project_analyst.");
    assert_eq!(bundle.role_instructions, ["Output.", "Tools."]);
    assert_eq!(bundle.hash.len(), 64);
}

/// P7: a role loads only its own bundle, whether reached by path, link or copy.
#[test]
fn the_other_roles_bundle_is_refused_however_it_is_reached() {
    let root = root();
    let manager = root.path().join("project_manager");
    let analyst = root.path().join("project_analyst");
    let refused = |own: &Path| {
        let error = load(Role::ProjectAnalyst, own, &manager, &root).unwrap_err();
        assert!(matches!(error, Error::OtherRole { .. }), "{error}");
    };
    refused(&manager);
    refused(&analyst.join("../project_manager"));
    let link = root.path().join("link");
    std::os::unix::fs::symlink(&manager, &link).unwrap();
    refused(&link);
    let copy = root.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(manager.join("baseline.md"), copy.join("baseline.md")).unwrap();
    refused(&copy);
}

/// P8: errors name the file that is missing, empty or too large.
#[test]
fn a_bad_bundle_is_refused_and_the_file_is_named() {
    let check = |spoil: &dyn Fn(&Path), part: &str| {
        let root = root();
        let folder = root.path().join("project_manager");
        spoil(&folder);
        let message = load_default(Role::ProjectManager, &root).unwrap_err().to_string();
        assert!(part.split(" … ").all(|part| message.contains(part)), "{message}");
    };
    check(&|folder| fs::remove_dir_all(folder).unwrap(), "cannot read … project_manager");
    check(&|folder| fs::remove_file(folder.join("baseline.md")).unwrap(), "no baseline.md");
    check(&|folder| fs::write(folder.join("10-output.md"), " \n").unwrap(), "10-output.md is empty");
    check(&|folder| fs::write(folder.join("10-output.md"), [0xff]).unwrap(), "cannot read … 10-output.md");
    let large = vec![b'x'; MAX_FILE_BYTES as usize + 1];
    check(&|folder| fs::write(folder.join("10-output.md"), &large).unwrap(), "10-output.md has 65537 bytes");
    let parts = |folder: &Path| {
        for part in 0..5 {
            fs::write(folder.join(format!("3{part}.md")), vec![b'x'; 60_000]).unwrap();
        }
    };
    check(&parts, "at most 262144 are allowed");
}

/// P8: the shipped bundles contain every required section.
#[test]
fn the_shipped_bundles_are_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions");
    for role in Role::ALL {
        let paths = config::Instructions {
            own: root.join(role.as_str()),
            other: root.join(role.other().as_str()),
            skill: root.join(SKILL),
        };
        let bundle = Bundle::load(role, &paths).unwrap();
        for heading in ["# Identity", "# Responsibilities", "# Non-goals"] {
            assert!(bundle.baseline.contains(heading), "{role}: baseline lacks {heading}");
        }
        let rest = bundle.role_instructions.join("\n");
        for heading in ["# Output contract", "# Tool-use contract", "# References"] {
            assert!(rest.contains(heading), "{role}: role instructions lack {heading}");
        }
    }
}
