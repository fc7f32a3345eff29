// Parses each file of argv, and runs nothing of it. node --experimental-vm-modules.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

// As node decides it: the nearest package.json of the skill, whose folder is the current one.
function isModule(file) {
    if (/\.[cm]js$/.test(file))
        return file.endsWith(".mjs");
    for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
        const about = path.join(folder, "package.json");
        if (fs.existsSync(about)) {
            try {
                return JSON.parse(fs.readFileSync(about, "utf8")).type === "module";
            } catch {
                return false;
            }
        }
        if (folder === "." || folder === path.dirname(folder))
            return false;
    }
}

function fault(source, file, asModule) {
    try {
        if (asModule)
            new vm.SourceTextModule(source, {identifier: file});
        else
            vm.compileFunction(source, ["exports", "require", "module", "__filename", "__dirname"],
                               {filename: file});
        return null;
    } catch (error) {
        return error;
    }
}

process.argv.slice(1).forEach((file, number) => {
    let state = "ok", line = 0, text = "";
    let error;
    try {
        const source = fs.readFileSync(file, "utf8").replace(/^\uFEFF/, "").replace(/^#!/, "//");
        const asModule = isModule(file);
        error = fault(source, file, asModule);
        if (error && !asModule && !file.endsWith(".cjs") && !fault(source, file, true))
            state = "odd";
    } catch (caught) {
        error = caught;
    }
    if (error) {
        state = state === "odd" ? state : "bad";
        const at = /:(\d+)\n/.exec(String(error.stack).slice(0, 4096));
        line = at ? Number(at[1]) : 0;
        text = String(error.message).replace(/\0/g, " ").slice(0, 200);
    }
    fs.writeSync(1, `${number} ${state} ${line} ${text}\0`);
});
