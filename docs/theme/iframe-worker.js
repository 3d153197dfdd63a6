"use strict";
/* A browser starts no worker on a page that is opened as a file. There the worker of the search runs in a hidden frame. */

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script src="${address}"></script>`;
      this.loaded = new Promise((resolve) => frame.addEventListener("load", () => {
        frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        resolve(frame.contentWindow);
      }));
      document.body.append(frame);
    }

    postMessage(data) {
      this.loaded.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
