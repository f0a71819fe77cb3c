// Run by check_layout.py in a page that looks at PAGES, one after the other, in a frame.

const WIDTHS = [1280, 500], THEMES = ["light", "dark"], CONTRAST = 4.5, PIXEL = 1.5;
// A cell of a table with LINES or more has so many characters a line, or more.
const LINES = 3, CHARACTERS = 11;
// On a screen, a table of so many columns and an output of a notebook may scroll, too.
const COLUMNS = 8, OUTPUT = ".rendered_html";
const frame = document.createElement("iframe");
frame.style.cssText = "border: 0; height: 900px; width: 1280px";
document.body.append(frame);

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

function named(element) {
    const kinds = [...element.classList].slice(0, 2).map((name) => "." + name).join("");
    const words = (element.textContent || element.src || "").trim().replace(/\s+/g, " ");
    return `<${element.localName}${kinds}> ${words.slice(0, 50)}`;
}

function isShown(element) {
    const box = element.getBoundingClientRect();
    return box.width > 1 && box.height > 1 && element.checkVisibility(
        { opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });
}

// The nearest box around an element that scrolls or cuts off what is wider.
function boxOf(element, view) {
    for (let at = element.parentElement; at; at = at.parentElement) {
        if (view.getComputedStyle(at).overflowX !== "visible") return at;
    }
    return null;
}

// By how much the inside of a box is wider than the box; of formulas, what is seen.
function inside(element) {
    const formulas = [...element.querySelectorAll("mjx-math")];
    if (!formulas.length) return element.scrollWidth - element.clientWidth;
    const right = element.getBoundingClientRect().right;
    return Math.max(...formulas.map((f) => f.getBoundingClientRect().right - right));
}

// By how much a table is wider than itself, if it scrolls, or than its box.
function cutOff(table, box) {
    const outer = box ? box.scrollWidth - box.clientWidth : 0;
    return Math.max(table.scrollWidth - table.clientWidth, outer);
}

function wide(page, view, width) {
    const faults = [], root = page.documentElement, told = new Set();
    if (root.scrollWidth > width + PIXEL) {
        faults.push(`the page is ${root.scrollWidth} wide`);
    }
    const column = page.querySelector("article.bd-article, article, main") || page.body;
    const frame = column.getBoundingClientRect();
    for (const element of column.querySelectorAll("*")) {
        if (!isShown(element) || element.parentElement.closest("mjx-container")) continue;
        const overflow = view.getComputedStyle(element).overflowX;
        const inner = overflow === "visible" ? 0 : Math.round(inside(element));
        if (/^H[1-6]$/.test(element.tagName) && element.scrollWidth > element.clientWidth) {
            faults.push(`cut off: ${named(element)}`);
        }
        const isCode = element.matches("pre, div.math, mjx-container[display]");
        if (overflow === "hidden" && inner > PIXEL && !element.closest("svg")) {
            faults.push(`cut off by ${inner}: ${named(element)}`);
        } else if (width === WIDTHS[0] && inner > PIXEL && isCode) {
            faults.push(`scrolls by ${inner}: ${named(element)}`);
        }
        const box = boxOf(element, view);
        const isText = element.matches("table") && !element.closest(OUTPUT) &&
            element.rows[0]?.cells.length < COLUMNS;
        const beyond = isText ? cutOff(element, box) : 0;
        if (width === WIDTHS[0] && beyond > PIXEL) {
            faults.push(`a table cut off by ${beyond}: ${named(element)}`);
        }
        if (box && column.contains(box) && box !== column) continue;
        const own = element.getBoundingClientRect();
        const over = Math.max(own.right - frame.right, frame.left - own.left);
        if (over > PIXEL && !told.has(element.parentElement)) {
            faults.push(`wider than its column by ${Math.round(over)}: ${named(element)}`);
        }
        if (over > PIXEL) told.add(element);
    }
    return faults;
}

// The number of lines that the text of an element has.
function lines(element) {
    const page = element.ownerDocument, boxes = [];
    const texts = page.createNodeIterator(element, NodeFilter.SHOW_TEXT);
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
        const range = page.createRange();
        range.selectNode(node);
        boxes.push(...[...range.getClientRects()].filter((box) => box.width > 0));
    }
    let count = 0, bottom = -Infinity;
    for (const box of boxes.sort((a, b) => a.top - b.top)) {
        // What begins above the middle of a line is in that line: code is smaller.
        if (box.top > bottom - box.height / 2) count += 1;
        bottom = Math.max(bottom, box.bottom);
    }
    return count;
}

// Cells of tables that are so narrow that they have about one word a line, or that their
// text runs into the next cell.
function narrow(page) {
    return [...page.querySelectorAll("td, th")].filter(isShown).flatMap((cell) => {
        const beyond = cell.scrollWidth - cell.clientWidth;
        if (beyond > PIXEL && !cell.querySelector("mjx-container")) {
            return [`text runs over its cell by ${beyond}: ${named(cell)}`];
        }
        const text = cell.textContent.trim().replace(/\s+/g, " "), high = lines(cell);
        const isNarrow = high >= LINES && text.length < CHARACTERS * high;
        return isNarrow ? [`${high} lines of a word or two: ${named(cell)}`] : [];
    });
}

function numbers(colour) {
    const parts = colour.match(/[\d.]+/g).map(Number);
    if (colour.startsWith("color(srgb")) {
        return [...parts.slice(0, 3).map((part) => part * 255), parts[3] ?? 1];
    }
    return [...parts.slice(0, 3), parts[3] ?? 1];
}

const over = (top, below) => below.slice(0, 3).map(
    (part, i) => top[i] * top[3] + part * (1 - top[3])).concat(1);

function background(element, view) {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
        const style = view.getComputedStyle(at);
        if (style.backgroundImage !== "none") return null;
        const colour = numbers(style.backgroundColor);
        if (colour[3] > 0) layers.push(colour);
        if (colour[3] === 1) break;
    }
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 1]);
}

function luminance(colour) {
    const [r, g, b] = colour.slice(0, 3).map((part) => part / 255).map(
        (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Elements that have text of their own.
function written(page) {
    return [...page.body.querySelectorAll("*")].filter((element) =>
        !element.matches("script, style, option, svg *") &&
        !element.closest("mjx-assistive-mml, [disabled], [aria-hidden=true]") &&
        [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
}

function pale(page, view) {
    const faults = new Map();
    for (const element of written(page)) {
        if (!isShown(element)) continue;
        const below = background(element, view);
        if (!below) continue;
        const ink = numbers(view.getComputedStyle(element).color);
        for (let at = element; at; at = at.parentElement) {
            ink[3] *= Number(view.getComputedStyle(at).opacity);
        }
        const colour = over(ink, below);
        const [dark, light] = [colour, below].map(luminance).sort((a, b) => a - b);
        const contrast = (light + 0.05) / (dark + 0.05);
        if (contrast < CONTRAST) {
            const pair = [colour, below].map((c) => c.slice(0, 3).map(Math.round)).join(" on ");
            const said = `contrast ${contrast.toFixed(2)}, ${pair}`;
            if (!faults.has(said)) faults.set(said, `${said}: ${named(element)}`);
        }
    }
    return [...faults.values()];
}

function pictures(page) {
    const faults = [...page.querySelectorAll("mjx-merror")].map(
        (error) => `a formula that TeX refuses: ${error.textContent}`,
    );
    for (const image of page.querySelectorAll("img")) {
        if (!image.alt.trim() || /\.(png|svg)$/.test(image.alt)) {
            faults.push(`no alt text: ${named(image)}`);
        }
        const inText = image.closest("article") && !image.closest("a, .sd-card, figure, .toggler") && !image.matches(".toggler");
        if (inText || (image.closest("figure") && !image.closest("figure").textContent.trim())) {
            faults.push(`no caption: ${named(image)}`);
        }
    }
    return faults;
}

async function load(name) {
    await new Promise((done) => { frame.onload = done; frame.src = "/" + name; });
    const view = frame.contentWindow;
    if (view.MathJax?.startup?.promise) await view.MathJax.startup.promise;
    await view.document.fonts.ready;
    await pause(20);
    return [view.document, view];
}

async function look(name) {
    frame.style.width = `${WIDTHS[0]}px`;
    const [page, view] = await load(name), faults = pictures(page), sizes = new Map();
    for (const fold of page.querySelectorAll("details")) fold.open = true;
    for (const width of WIDTHS) {
        frame.style.width = `${width}px`;
        await pause(20);
        const shapes = wide(page, view, width);
        if (width === WIDTHS.at(-1)) shapes.push(...narrow(page));
        faults.push(...shapes.map((fault) => `${width}: ${fault}`));
        for (const element of written(page)) {
            const size = parseFloat(view.getComputedStyle(element).fontSize);
            if (size < sizes.get(element) - 0.1) {
                faults.push(`${width}: a smaller font: ${named(element)}`);
            }
            sizes.set(element, size);
        }
        for (const theme of THEMES) {
            page.documentElement.dataset.theme = theme;
            page.documentElement.dataset.mode = theme;
            await pause(20);
            faults.push(...pale(page, view).map((said) => `${width} ${theme}: ${said}`));
        }
        page.documentElement.dataset.theme = "light";
    }
    return faults;
}

async function all() {
    for (const page of PAGES) {
        let faults;
        try {
            faults = await look(page);
        } catch (error) {
            faults = [`cannot be looked at: ${error}`];
        }
        await fetch("/", { method: "POST", body: JSON.stringify({ page, faults }) });
    }
}

all();
