// Refreshes the admin's pages by themselves: the same page is fetched every few seconds, and its
// marked parts take the place of those that are there. Never under somebody's hands: it waits while
// rows, an action or some text are selected, or something is typed. All texts are data of the
// control.
"use strict";
{
    const LONGEST = 60; // seconds between two tries while the server fails
    const QUIET = 30; // seconds between two texts for those who hear the page
    const HANDS = ".action-select:checked, input:focus-visible, select:focus, .actions :focus";

    /** Return what stands in the fresh part for an element of the old one. */
    function counterpart(element, old, fresh) {
        const tag = element.localName;
        const name = ["id", "value", "href"].find((each) => element.hasAttribute(each));
        if (name) {
            const value = CSS.escape(element.getAttribute(name));
            return fresh.querySelector(`${tag}[${name}="${value}"]`);
        }
        return fresh.querySelectorAll(tag)[[...old.querySelectorAll(tag)].indexOf(element)];
    }

    /** Put a fresh part in the place of the old one; focus, scrolling and folds stay. */
    function replace(fresh) {
        const old = document.getElementById(fresh.id);
        const focused = old.contains(document.activeElement) && document.activeElement;
        const next = focused && counterpart(focused, old, fresh);
        const scrolled = old.querySelector(".results")?.scrollLeft;
        fresh.querySelectorAll("details").forEach((each) => keepFold(each, old));
        old.replaceWith(fresh);
        fresh.querySelector(".results")?.scrollTo({ left: scrolled ?? 0, behavior: "instant" });
        next?.focus?.({ preventScroll: true });
        fresh.addEventListener("click", () => bindActions(fresh), { capture: true, once: true });
    }

    /** Let something that folds be as it was, with all that listens to it; its content is fresh. */
    function keepFold(fresh, old) {
        const title = (fold) => fold.querySelector("summary")?.textContent.trim();
        const kept = [...old.querySelectorAll("details")].find((e) => title(e) === title(fresh));
        if (kept) {
            kept.replaceChildren(...fresh.childNodes);
            fresh.replaceWith(kept);
        }
    }

    /** Let Django's own script count the rows of a fresh list, now that somebody turns to it. */
    function bindActions(list) {
        const boxes = list.querySelectorAll("tr input.action-select");
        if (boxes.length > 0) {
            window.Actions?.(boxes);
        }
    }

    /** Tell whether a person is about to do something with what is shown. */
    function inUse() {
        const list = document.getElementById("changelist");
        const search = document.getElementById("searchbar");
        return (
            Boolean(list?.querySelector("select[name=action]")?.value) ||
            Boolean(list?.querySelector(HANDS)) ||
            search?.value !== search?.defaultValue ||
            !getSelection().isCollapsed
        );
    }

    /** Tell whether a finger or a mouse's button is down: the click is still to come. */
    const pressed = () => document.querySelector(":active") !== null;

    function start(control) {
        const { every, parts, ...texts } = control.dataset;
        const button = control.querySelector("button");
        const state = control.querySelector("[data-state]");
        const news = control.querySelector("[data-news]");
        const told = () => document.querySelector("[data-recheck-news]")?.dataset.recheckNews;
        let paused = sessionStorage.getItem("recheck-paused") !== null;
        let wait = Number(every); // in seconds
        let timer = null;
        let heard = told();
        let quietUntil = 0;

        function say(text) {
            if (state.textContent !== text) {
                state.textContent = text; // screen readers read it
            }
        }

        /** Tell those who hear the page what has changed, and not each time. */
        function tell() {
            if (told() !== heard && Date.now() > quietUntil) {
                news.textContent = heard = told() ?? "";
                quietUntil = Date.now() + QUIET * 1000;
            }
        }

        function later(seconds = wait) {
            clearTimeout(timer);
            button.textContent = paused ? texts.resume : texts.pause;
            if (paused) {
                say(texts.paused);
            } else if (!document.hidden) {
                timer = setTimeout(refresh, seconds * 1000);
            }
        }

        async function refresh() {
            if (pressed()) {
                return later(1);
            }
            if (inUse()) {
                say(texts.inUse);
                return later();
            }
            try {
                const signal = AbortSignal.timeout(LONGEST * 1000);
                const response = await fetch(location.href, { cache: "no-store", signal });
                if (!response.ok && response.status !== 403) {
                    throw new Error(response.statusText);
                }
                const page = new DOMParser().parseFromString(await response.text(), "text/html");
                const fresh = parts.split(" ").map((id) => page.getElementById(id));
                if (fresh.includes(null)) {
                    return say(texts.gone); // somebody has signed out, or may not see it any more
                }
                if (!paused && !pressed() && !inUse()) {
                    fresh.forEach(replace);
                    tell();
                }
                wait = Number(every);
                say(texts.running);
            } catch {
                wait = Math.min(LONGEST, wait * 2);
                say(texts.failing);
            }
            later();
        }

        button.addEventListener("click", () => {
            paused = !paused;
            if (paused) {
                sessionStorage.setItem("recheck-paused", "");
            } else {
                sessionStorage.removeItem("recheck-paused");
                say(texts.running);
            }
            later();
        });
        document.addEventListener("visibilitychange", () => later(0));
        window.addEventListener("pagehide", () => clearTimeout(timer));
        window.addEventListener("pageshow", () => later());
        control.hidden = false;
        say(texts.running);
    }

    document.addEventListener("DOMContentLoaded", () => {
        document.querySelectorAll("[data-recheck-refresh]").forEach(start);
    });
}
